"""The states of all ledgers of a Java bookie: of its index, brought up to date by its journal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from bkbox.base.values import field, replaced, struct
from bkbox.storage.files import Files
from bkbox.storage.log.records import LAC_PACKET
from bkbox.takeover import java_index_file, java_journal, java_rocksdb
from bkbox.takeover.java_bookie import JavaBookie, Storage, tree
from bkbox.takeover.java_journal import JournalRecord
from bkbox.takeover.java_ledger import JavaLedger


@struct
class LedgerStates:
    """``ledgers``: state by ledger id; ``home``: number of the index directory that knows the ledger, of those with a
    DbLedgerStorage each. ``losses``: what may be missing, as text.
    """

    ledgers: dict[int, JavaLedger] = field(default_factory=dict)
    home: dict[int, int] = field(default_factory=dict)
    losses: list[str] = field(default_factory=list)


def journal_files(java: JavaBookie, files: Files) -> list[tuple[Path, int]]:
    """The journal files to replay, of all journal directories, each with the offset to begin at. DamagedError."""
    ledger_trees = [tree(Path(each)) for each in java.ledger_dirs]
    found = []
    for number, directory in enumerate(java.journal_dirs):
        name = java_journal.mark_name(number, len(java.journal_dirs))
        mark = java_journal.read_mark(files, ledger_trees, name)
        found += java_journal.files_since(files, tree(Path(directory)), mark)
    return found


def journal_bytes(files: Files, journal: list[tuple[Path, int]]) -> int:
    """Bytes of the journal that are replayed, at most."""
    total = 0
    for path, start in journal:
        with closing(files.open_read(path)) as file:
            total += max(file.size() - start, 0)
    return total


def replay(files: Files, journal: list[tuple[Path, int]]) -> Iterator[JournalRecord]:
    """The records of the journal in order. DamagedError, DiskError."""
    for path, start in journal:
        with closing(files.open_read(path)) as file:
            yield from java_journal.records(file, path, start)


def read_states(java: JavaBookie, files: Files, *, fence_all: bool) -> LedgerStates:
    """The states of all ledgers that index and journal know. ``fence_all``: do without the index; a ledger that only
    it knows is then known by its entries alone. Raises DamagedError, HostError, DiskError.
    """
    states = LedgerStates()
    if not fence_all:
        if java.storage is Storage.DB:
            _read_databases(java, states)
        else:
            _read_index_files(java, files, states)
    for record in replay(files, journal_files(java, files)):
        _apply(states.ledgers, record)
    return states


def _read_databases(java: JavaBookie, states: LedgerStates) -> None:
    for number, directory in enumerate(java.index_dirs):
        found = java_rocksdb.read_ledgers(tree(Path(directory)))
        states.ledgers.update(found.ledgers)
        states.home.update(dict.fromkeys(found.ledgers, number))
        if found.check_due:
            states.losses.append(f"{directory}: the data integrity check of Java's bookie was due")


def _read_index_files(java: JavaBookie, files: Files, states: LedgerStates) -> None:
    for directory in java.index_dirs:
        for ledger, path in java_index_file.index_files(files, tree(Path(directory))):
            with closing(files.open_read(path)) as file:
                header = file.pread(0, java_index_file.HEADER_BYTES)
            found = java_index_file.decode_header(header, path)
            if found is not None:
                states.ledgers[ledger] = found


def _apply(ledgers: dict[int, JavaLedger], record: JournalRecord) -> None:
    known = ledgers.get(record.ledger)
    if record.entry == java_journal.MASTER_KEY_ENTRY:
        state = known or JavaLedger()
        if state.known_key is None:
            state = replaced(state, master_key=record.body)
        ledgers[record.ledger] = state
    elif known is None:
        return  # it was deleted since
    elif record.entry == java_journal.FENCE_ENTRY:
        ledgers[record.ledger] = replaced(known, fenced=True)
    elif record.entry == java_journal.EXPLICIT_LAC_ENTRY:
        ledgers[record.ledger] = replaced(known, explicit_lac=record.body)


def sound_lac(ledger: int, packet: bytes | None) -> bytes | None:
    """The packet if it is an explicit LAC of the ledger."""
    if packet is None or len(packet) < LAC_PACKET.size:
        return None
    return packet if LAC_PACKET.unpack_from(packet)[0] == ledger else None
