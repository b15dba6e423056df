"""The last part of a scrub: compares this bookie's entries of closed ledgers with the copies of the other bookies.

A record with a valid checksum can still differ from the one its peers have: the memory failed before the checksum was
made, or there were two writers. All copies of an entry are read, this bookie's like the others. The digest or the
metadata decides which copy is right (protocol/copy_agreement.py). That copy is then written, as a recovery add, to each
bookie that has another. Where nothing decides, the ledger is reported, with what each bookie has, and nothing is
changed.

A bookie that does not respond, or is in limbo, contributes nothing. A bookie that denies an entry lacks a copy; that
is counted here and left to autorecovery. Progress is recorded every few ledgers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from bkbox.base.commandline import bookie_command
from bkbox.base.ids import BookieId, EntryId, LedgerId
from bkbox.base.text import counted
from bkbox.client.connection.pool import Add
from bkbox.errors import DigestError, MetadataError, NoSuchLedgerError
from bkbox.jobs.context import JobContext
from bkbox.protocol.copy_agreement import agreement
from bkbox.protocol.events import describe
from bkbox.protocol.repair import expected_entries
from bkbox.repair.context import Environment
from bkbox.wire.codes import Code, Evidence
from bkbox.wire.digest import DigestManager, VerifiedEntry, master_key
from bkbox.wire.metadata.ledger import LedgerMetadata, LedgerState
from bkbox.wire.write_set import write_set

log = logging.getLogger(__name__)

_AT_ONCE = 64
_FIRST_GUESS_BYTES = 4_096
_UNDECIDED_ADVICE = (
    "nothing is changed by itself, as nothing proves which copy is right: the ledger's writer has to say; until "
    "then readers get either one"
)


def _unwritten_advice() -> str:
    return (
        f"see whether the bookies that are named take entries, then run `{bookie_command('scrub', 'run')}`; one of "
        "Apache's with SortedLedgerStorage shows what was written over only once it has flushed or was started again"
    )


@dataclass(slots=True)
class _Copy:
    """One bookie's copy of an entry: its bytes, and their parsed contents; None where the digest is wrong."""

    data: bytes
    entry: VerifiedEntry | None


@dataclass(slots=True)
class _Found:
    """The defect of one ledger that could not be repaired."""

    undecided: dict[int, str] = field(default_factory=dict)
    unwritten: dict[int, str] = field(default_factory=dict)


class Comparison:
    """Compares the ledgers of one bookie with their other copies."""

    def __init__(self, work: JobContext, environment: Environment) -> None:
        self._work = work
        self._me = environment.me
        self._store = environment.store
        self._pool = environment.client.pool
        self._bytes = _FIRST_GUESS_BYTES
        """Recent sizes of an entry, in bytes."""

    async def ledger(self, ledger: int) -> None:
        """Compare all copies of a ledger's entries that this bookie has to hold. A ledger that is not closed, or no
        longer there, is skipped. Raises JobCancelledError.
        """
        await self._work.checkpoint(metadata_calls=1)
        try:
            metadata = (await self._store.read_ledger(LedgerId(ledger), linearizable=True)).value
            registered = frozenset(await self._store.bookies())
        except NoSuchLedgerError:
            return
        except MetadataError as error:
            self._work.block(
                ledger, str(error), f"run `{bookie_command('scrub', 'run')}` when the store is back"
            )
            return
        if (
            metadata.state is not LedgerState.CLOSED
            or metadata.digest_type is None
            or metadata.password is None
        ):
            return
        digests = DigestManager(ledger, metadata.digest_type, metadata.password)
        found = _Found()
        left = _entries(metadata, self._me)
        while entries := list(islice(left, _AT_ONCE)):
            await self._compare(metadata, digests, registered, entries, found)
        self._tell(ledger, found)

    async def _compare(
        self,
        metadata: LedgerMetadata,
        digests: DigestManager,
        registered: frozenset[BookieId],
        entries: Sequence[int],
        found: _Found,
    ) -> None:
        places = [(entry, _holders(metadata, entry) & registered) for entry in entries]
        await self._work.checkpoint(
            network_bytes=self._bytes * sum(len(each) for _, each in places)
        )
        reads = [
            (entry, bookie, self._pool.read(bookie, metadata.ledger_id, entry, None))
            for entry, bookies in places
            for bookie in sorted(bookies)
        ]
        copies: dict[int, dict[BookieId, _Copy]] = {entry: {} for entry in entries}
        total = 0
        for entry, bookie, pending in reads:
            reply = await pending
            if reply.status is Code.EOK and reply.entry is not None:
                data = bytes(reply.entry)
                total += len(data)
                copies[entry][bookie] = _Copy(data, _verified(digests, data, entry))
            elif reply.status.evidence is Evidence.NEGATIVE:
                self._work.count("copies_missing")
        self._bytes = max(1, total // max(1, len(reads)))
        self._work.count("entries_compared", len(entries))
        for entry, of_entry in copies.items():
            if of_entry:
                await self._resolve(metadata, entry, of_entry, found)

    async def _resolve(
        self, metadata: LedgerMetadata, entry: int, copies: dict[BookieId, _Copy], found: _Found
    ) -> None:
        verdict = agreement(metadata, entry, {name: each.entry for name, each in copies.items()})
        if not verdict.differ:
            return
        self._work.count("entries_differing")
        shown = ", ".join(f"{name} has {_shown(each)}" for name, each in sorted(copies.items()))
        log.error("ledger %d entry %d differs: %s", metadata.ledger_id, entry, shown)
        if verdict.right is None:
            found.undecided[entry] = shown
            return
        for bookie in verdict.wrong:
            why = await self._write(metadata, entry, bookie, copies[verdict.right].data)
            if why:
                found.unwritten[entry] = why
            else:
                self._work.count("copies_mended")

    async def _write(
        self, metadata: LedgerMetadata, entry: int, bookie: BookieId, data: bytes
    ) -> str:
        """Returns an empty text once the bookie confirms that it has the entry, else the reason."""
        ledger = metadata.ledger_id
        assert metadata.password is not None
        key, synced = master_key(metadata.password), metadata.synced
        add = Add(ledger, entry, key, data, recovery=True, synced=synced)
        stored = (await self._pool.add(bookie, add)).status
        if stored is not Code.EOK:
            return f"it could not be written: {describe([(bookie, stored)])}"
        again = await self._pool.read(bookie, ledger, EntryId(entry), None)
        if again.entry is None or bytes(again.entry) != data:
            return f"{bookie} was given the right copy and still has another"
        log.warning("ledger %d entry %d: %s has the right copy now", ledger, entry, bookie)
        return ""

    def _tell(self, ledger: int, found: _Found) -> None:
        for what, advice in (
            (found.undecided, _UNDECIDED_ADVICE),
            (found.unwritten, _unwritten_advice()),
        ):
            if what:
                entry, why = min(what.items())
                text = f"{counted(len(what), 'entry', 'differ')} between the bookies; entry {entry}: {why}"
                self._work.block(ledger, text, advice)
                return


def _entries(metadata: LedgerMetadata, me: BookieId) -> Iterator[int]:
    for part in expected_entries(metadata, me):
        yield from part


def _holders(metadata: LedgerMetadata, entry: int) -> frozenset[BookieId]:
    ensemble = metadata.fragment_of(entry).ensemble
    positions = write_set(entry, metadata.ensemble_size, metadata.write_quorum)
    return frozenset(ensemble[at] for at in positions)


def _verified(digests: DigestManager, data: bytes, entry: int) -> VerifiedEntry | None:
    try:
        return digests.verify(data, entry)
    except DigestError:
        return None


def _shown(copy: _Copy) -> str:
    if copy.entry is None:
        return "one with a wrong digest"
    return f"{counted(len(copy.entry.payload), 'byte')} ending at {copy.entry.length}"
