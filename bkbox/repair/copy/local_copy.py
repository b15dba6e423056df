"""Copies to this bookie: the entries of a ledger that it must have and lacks, through its own front-end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from bkbox.base.commandline import cluster_command
from bkbox.base.ids import BookieId, LedgerId
from bkbox.base.text import counted
from bkbox.client.connection.pool import BookiePool
from bkbox.jobs.context import JobContext
from bkbox.protocol.events import RequestStatus, describe
from bkbox.protocol.repair import peers
from bkbox.protocol.rereplication import Transfer
from bkbox.repair.copy.byte_semaphore import ByteWindow
from bkbox.repair.copy.engine import CopyEngine
from bkbox.repair.copy.entry_source import EntrySource, ReadFailure
from bkbox.wire.metadata.ledger import LedgerMetadata


def copy_advice(ledger: LedgerId) -> str:
    """The remedy for entries that no peer returned."""
    explain = cluster_command("ledger", "explain", ledger)
    end = cluster_command("ledger", "end", ledger, "--accept-loss", "--plug", "--dry-run")
    return (
        "bring back a bookie that holds these entries, copying is tried again by itself; "
        f"`{explain}` shows which bookie has what; where no bookie has them any more, `{end}` shows what would be "
        "lost by giving them up"
    )


@dataclass(slots=True)
class CopyResult:
    """The entries that could not be copied, each with what each peer responded. ``nowhere``: those of them that every
    peer denies.
    """

    failed: dict[int, str] = field(default_factory=dict)
    nowhere: set[int] = field(default_factory=set)

    def unread(self, entry: int, failure: ReadFailure) -> None:
        self.failed[entry] = failure.describe()
        if not failure.is_unknown:
            self.nowhere.add(entry)

    def refused(self, target: BookieId, statuses: Mapping[int, RequestStatus]) -> None:
        for entry, status in statuses.items():
            why = describe([(target, status)])
            self.failed[entry] = f"it could not be stored here: {why}"

    def describe(self) -> str:
        """Text for the operator: the first few entries and the responses for each."""
        shown = [f"entry {entry}: {why}" for entry, why in sorted(self.failed.items())[:3]]
        others = len(self.failed) - len(shown)
        return "; ".join(shown) + (f"; and {counted(others, 'more entry')}" if others else "")


async def copy_to_local(
    me: BookieId,
    pool: BookiePool,
    metadata: LedgerMetadata,
    missing: Iterable[range],
    work: JobContext,
    window: ByteWindow,
    run_entries: int,
) -> CopyResult:
    """Copy each entry; entries that no peer has are in the result. ``run_entries``: as of CopyEngine.

    Raises JobCancelledError, and MetadataError for metadata without digest type or password: nothing could be checked.
    """
    result = CopyResult()
    engine = CopyEngine(
        EntrySource(pool, metadata, metadata.bookies(), {}),
        lambda entry: peers(metadata, entry, me),
        result,
        work,
        window,
        run_entries=run_entries,
        local=me,
    )
    await engine.copy(_transfers(missing, metadata, me))
    return result


def _transfers(
    missing: Iterable[range], metadata: LedgerMetadata, me: BookieId
) -> Iterator[Transfer]:
    """A run where every bookie holds every entry, otherwise each entry alone: a peer has only some of them."""
    is_uniform = metadata.write_quorum == metadata.ensemble_size
    for entries in missing:
        if is_uniform:
            yield Transfer(entries, (me,))
        else:
            yield from (Transfer(range(entry, entry + 1), (me,)) for entry in entries)
