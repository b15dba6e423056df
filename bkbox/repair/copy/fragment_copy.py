"""Copies between bookies: what one fragment of a ledger needs, to members that lack it and to new bookies."""

from __future__ import annotations

from collections.abc import Mapping

from bkbox.base.ids import BookieId, LedgerId
from bkbox.base.text import counted
from bkbox.errors import AddFailedError
from bkbox.jobs.context import JobContext
from bkbox.protocol.events import RequestStatus, describe
from bkbox.protocol.rereplication import FragmentRepair, sources, transfers
from bkbox.repair.copy.byte_semaphore import ByteWindow
from bkbox.repair.copy.engine import CopyEngine
from bkbox.repair.copy.entry_source import EntrySource, ReadFailure

_RUN_ENTRIES = 1_024


class _FirstFailure:
    """Ends the copy at the first entry that cannot be copied: its fragment is not replicated then."""

    def __init__(self, ledger: LedgerId) -> None:
        self._ledger = ledger

    def unread(self, entry: int, failure: ReadFailure) -> None:
        raise failure.error(self._ledger, entry)

    def refused(self, target: BookieId, statuses: Mapping[int, RequestStatus]) -> None:
        first, status = min(statuses.items())
        more = f" and {counted(len(statuses) - 1, 'more entry')}" if len(statuses) > 1 else ""
        raise AddFailedError(
            f"entry {first}{more} of ledger {self._ledger} could not be written: "
            f"{describe([(target, status)])}"
        )


async def copy_fragment(
    source: EntrySource,
    repair: FragmentRepair,
    new: Mapping[int, BookieId],
    work: JobContext,
    window: ByteWindow,
) -> None:
    """Copy everything, or raise at the first entry that could not be copied. ``new``: the bookies for lost positions.

    Raises NoSuchEntryError, UnknownEntryError, AddFailedError, JobCancelledError.
    """
    write_quorum = source.metadata.write_quorum
    engine = CopyEngine(
        source,
        lambda entry: sources(repair, write_quorum, entry),
        _FirstFailure(source.metadata.ledger_id),
        work,
        window,
        run_entries=_RUN_ENTRIES,
    )
    await engine.copy(transfers(repair, write_quorum, new))
