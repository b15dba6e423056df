"""A stopped Java bookie's directories, written by the package's own writers of Java's formats, and what is on them."""

from __future__ import annotations

import struct
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from bkbox.base.ids import BookieId, EntryId, LedgerId
from bkbox.config.java_properties import parse
from bkbox.config.load import load
from bkbox.config.schema import Config
from bkbox.metadata import connect, create
from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.files import RealFiles
from bkbox.takeover.disk_store import open_disk
from bkbox.takeover.handback import Handback
from bkbox.takeover.java_bookie import CURRENT, JavaBookie, Storage, java_bookie, tree
from bkbox.takeover.java_entry_log import EntryLogScan, EntryLogWriter, log_file_name
from bkbox.takeover.java_index_writer import write_index
from bkbox.takeover.java_journal import (
    JournalRecord,
    Mark,
    encode_mark,
    journal_file_name,
    mark_name,
    write_journal,
)
from bkbox.takeover.java_ledger import JavaLedger
from bkbox.takeover.java_states import read_states
from bkbox.takeover.plan import Cluster, read_cluster
from bkbox.takeover.takeover import Takeover
from bkbox.wire.metadata import cookie as cookies
from bkbox.wire.metadata.ledger import Fragment, LedgerMetadata, LedgerState
from tests.harness.processes import free_port

KEY = b"k" * 20
_HEADER = struct.Struct(">qqqq")


class KilledError(Exception):
    """The step at which a kill is simulated."""


@dataclass
class Killer:
    """An observer that ends the conversion before its ``at``-th step, counted from 0; never if it has fewer."""

    at: int = -1
    steps: list[str] = field(default_factory=list)

    def step(self, name: str) -> None:
        if len(self.steps) == self.at:
            raise KilledError(name)
        self.steps.append(name)

    def stage(self, name: str, total_bytes: int) -> None: ...

    def advance(self, count: int) -> None: ...


def entry(ledger: int, number: int, size: int = 90) -> bytes:
    """An entry as on the wire."""
    head = _HEADER.pack(ledger, number, number - 1, size * (number + 1))
    return head + f"{ledger}/{number}".encode().ljust(size, b".")


def lac(ledger: int, number: int) -> bytes:
    return struct.pack(">qq", ledger, number) + b"digest"


Entries = dict[tuple[int, int], bytes]
States = dict[int, JavaLedger]


class Disks:
    """Directories of one bookie, of either kind, with SQLite as the metadata store."""

    def __init__(self, root: Path, storage: Storage, disks: int = 1) -> None:
        self.root = root
        self.files = RealFiles()
        ledger_dirs = [root / f"data{number}" for number in range(disks)]
        self.port = free_port()
        self.conf = root / "bk_server.conf"
        self.conf.write_text(
            f"bookiePort={self.port}\n"
            f"journalDirectories={root / 'journal'}\n"
            f"ledgerDirectories={','.join(map(str, ledger_dirs))}\n"
            f"ledgerStorageClass=org.apache.bookkeeper.{storage.value}\n"
        )
        self.java: JavaBookie = java_bookie(parse(self.conf.read_text(), "conf"), str(self.conf))
        toml = root / "bookie.toml"
        toml.write_text(
            f'listen = "127.0.0.1:{self.port}"\nmetadata = "sqlite:{root}/meta.db"\n'
            f"disks = {[str(each) for each in ledger_dirs]}\nsegment_bytes_max = 4096\n"
        )
        self.config: Config = load(toml, {})
        self.cluster = Cluster(frozenset(), "")

    async def make(self, entries: list[Entries], states: States, late: Entries) -> None:
        """Write a Java bookie: ``entries`` of each of its log files, which go to the directories in turn; the states of
        ledgers 1 and up in the index; ``late`` entries that are in the journal alone. Ledger 9 was deleted."""
        files, java = self.files, self.java
        async with await create(self.config.metadata) as store:
            for ledger in states:
                if ledger != 9:
                    await store.create_ledger(_metadata(ledger, self.config.bookie_id))
            instance = await store.instance_id()
            data = cookies.encode(java.cookie(self.config.bookie_id, instance))
            await store.write_cookie(BookieId(self.config.bookie_id), data, None)
            self.cluster = await read_cluster(store, self.config.bookie_id, self.port)
        for directory in java.directories:
            (directory / CURRENT).mkdir(parents=True)
            (directory / CURRENT / "VERSION").write_bytes(data)
        count = len(java.ledger_dirs)
        for number, part in enumerate(entries):
            by_disk: dict[int, Entries] = {}
            for (ledger, each), body in part.items():
                home = ledger % count if java.storage is Storage.DB else number % count
                by_disk.setdefault(home, {})[ledger, each] = body
            for home, ours in by_disk.items():
                path = tree(Path(java.ledger_dirs[home])) / log_file_name(number)
                with closing(files.open_append(path)) as file:
                    writer = EntryLogWriter(file)
                    for (ledger, _), body in ours.items():
                        writer.append(ledger, body)
                    writer.end()
        write_index(java, files, states, {ledger: ledger % count for ledger in states})
        journal = tree(Path(java.journal_dirs[0]))
        before = [JournalRecord(1, 0, entry(1, 0))]
        records = [JournalRecord(ledger, each, body) for (ledger, each), body in late.items()]
        for number, found in ((16, before), (17, records)):
            with closing(files.open_append(journal / journal_file_name(number))) as file:
                write_journal(file, found)
        mark = encode_mark(Mark(17, 512))
        (tree(Path(java.ledger_dirs[0])) / mark_name(0, 1)).write_bytes(mark)

    async def takeover(self, killer: Killer, **options: bool) -> None:
        work = Takeover(
            self.java,
            self.config,
            self.files,
            self.cluster,
            killer,
            now_ms=lambda: 1,
            new_uuid=uuid4,
            **options,
        )
        with work.locked():
            work.convert()
            async with await connect(self.config.metadata) as store:
                await work.finish(store)

    async def handback(self, killer: Killer) -> None:
        work = Handback(self.java, self.config, self.files, self.cluster, killer, now_ms=lambda: 1)
        async with await connect(self.config.metadata) as store:
            begun = await work.check(store)
            with work.locked():
                work.convert(begun)
                await work.finish(store)

    # ---- what is there ------------------------------------------------------------------------

    def of_bkbox(self) -> tuple[Entries, States]:
        """All entries and states on bkbox's disks."""
        entries: Entries = {}
        states: States = {}
        for disk in self.config.disks:
            store, lost = open_disk(self.files, disk, self.config, lambda: 1)
            try:
                assert lost == ()
                self._collect(store, entries, states)
            finally:
                store.abandon()
        return entries, states

    def _collect(self, store: DiskStore, entries: Entries, states: States) -> None:
        for ledger, state in store.ledgers():
            assert ledger not in states, "on two disks"
            states[ledger] = JavaLedger(
                state.master_key or b"", state.fenced, store.explicit_lac(ledger), state.limbo
            )
            for first, last in store.entries(ledger):
                for number in range(first, last + 1):
                    body = store.read_entry(ledger, number)
                    assert body is not None
                    entries[ledger, number] = body

    def of_java(self) -> tuple[Entries, States]:
        """All entries in Java's log files, and the states in its index."""
        entries: Entries = {}
        for directory in self.java.ledger_dirs:
            for path in sorted(tree(Path(directory)).glob("*.log")):
                with closing(self.files.open_read(path)) as file:
                    scan = EntryLogScan(file, path)
                    entries |= {(each.ledger, each.entry): each.body for each in scan}
                    assert scan.damage == ""
        return entries, read_states(self.java, self.files, fence_all=False).ledgers


def _metadata(ledger: int, bookie: str) -> LedgerMetadata:
    fragment = Fragment(EntryId(0), (BookieId(bookie),))
    return LedgerMetadata(LedgerId(ledger), 1, 1, 1, LedgerState.OPEN, (fragment,))
