"""Refills entries that cannot be read on this bookie any more from peers, one ledger after the other.

Until that is done a read of such an entry gets EIO, which sends the reader to the next bookie.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from bkbox.base.commandline import bookie_command
from bkbox.base.ids import BookieId, LedgerId
from bkbox.base.text import counted
from bkbox.errors import MetadataError, NoSuchLedgerError
from bkbox.jobs.context import JobContext
from bkbox.protocol.repair import joined
from bkbox.repair.context import Environment
from bkbox.repair.copy.byte_semaphore import WINDOW_BYTES, ByteWindow
from bkbox.repair.copy.local_copy import copy_to_local
from bkbox.wire.metadata.ledger import LedgerMetadata, LedgerState
from bkbox.wire.write_set import in_write_set

log = logging.getLogger(__name__)


def _advice() -> str:
    return (
        f"bring back a bookie that holds these entries, then run `{bookie_command('scrub', 'run')}`"
    )


async def refill(
    work: JobContext,
    environment: Environment,
    unreadable: Iterable[tuple[int, int]],
    *,
    named: bool,
) -> int:
    """Copy entries (ledger, id) here; returns how many could not be copied. ``named``: the index names them;
    otherwise only entries count that the metadata assigns to this bookie. Raises JobCancelledError.
    """
    by_ledger: dict[int, set[int]] = {}
    for ledger, entry in unreadable:
        by_ledger.setdefault(ledger, set()).add(entry)
    left = 0
    for ledger, entries in sorted(by_ledger.items()):
        await work.checkpoint(metadata_calls=1)
        try:
            metadata = (
                await environment.store.read_ledger(LedgerId(ledger), linearizable=True)
            ).value
            lost = [
                entry
                for entry in sorted(entries)
                if _counts(metadata, entry)
                and (named or _is_owned(metadata, entry, environment.me))
            ]
            left += await _copy(work, environment, metadata, lost)
        except NoSuchLedgerError:
            work.unblock(ledger)  # it was deleted: no client reads it
        except MetadataError as error:
            left += len(entries)
            work.block(ledger, str(error), _advice())
    return left


async def _copy(
    work: JobContext, environment: Environment, metadata: LedgerMetadata, entries: list[int]
) -> int:
    """Copy entries of one ledger; returns how many could not be copied."""
    ledger = int(metadata.ledger_id)
    if entries:
        work.count("entries_unreadable", len(entries))
        log.warning("ledger %d: %d entries cannot be read: refilling them", ledger, len(entries))
    missing = joined(range(entry, entry + 1) for entry in entries)
    result = await copy_to_local(
        environment.me,
        environment.client.pool,
        metadata,
        missing,
        work,
        ByteWindow(WINDOW_BYTES),
        environment.order.entries_in_flight,
    )
    failed = result.failed
    work.count("entries_refilled", len(entries) - len(failed))
    if failed:
        entry, why = min(failed.items())
        reason = f"{counted(len(failed), 'entry')} cannot be read here or brought back; entry {entry}: {why}"
        work.block(ledger, reason, _advice())
    else:
        work.unblock(ledger)
    return len(failed)


def _counts(metadata: LedgerMetadata, entry: int) -> bool:
    """True unless the entry is past the end of a closed ledger, where no client reads."""
    return metadata.state is not LedgerState.CLOSED or entry <= metadata.last_entry


def _is_owned(metadata: LedgerMetadata, entry: int, me: BookieId) -> bool:
    """True if the metadata assigns the entry to this bookie."""
    return any(
        member == me
        and in_write_set(entry, position, metadata.ensemble_size, metadata.write_quorum)
        for position, member in enumerate(metadata.fragment_of(entry).ensemble)
    )
