"""The recovery job: one ledger is recovered and closed; retried until enough of its bookies can respond.

A client tries once and gives up (`bkbox ledger recover`); this job retries. The reason for a failure, and what the
operator can do, are reported as for any job. When cancelled or killed it leaves the ledger fenced, as any unfinished
recovery does, and the next one continues.
"""

from __future__ import annotations

import asyncio

from bkbox.base.backoff import Backoff
from bkbox.base.ids import LedgerId, ledger_id
from bkbox.client.client import Client
from bkbox.errors import BkboxError, RecoveryAbortedError
from bkbox.jobs.context import JobContext
from bkbox.repair.cancellable_wait import wait_cancellable
from bkbox.repair.context import Environment

_ADVICE = "wait until more bookies of its ensemble are up and out of limbo; recovery is tried again by itself"


async def recover(work: JobContext, environment: Environment, arguments: dict[str, str]) -> None:
    """Recover one ledger. ``ledger``: its id. Raises NoSuchLedgerError, MetadataError, JobCancelledError."""
    ledger, order = ledger_id(arguments["ledger"]), environment.order
    backoff = Backoff(order.retry_initial_s, order.retry_max_s, environment.rng)
    work.expect(ledgers=1)
    while True:
        work.set_step(f"recovering ledger {ledger}")
        await work.checkpoint(metadata_calls=1)
        try:
            await environment.client.recover(ledger)
        except RecoveryAbortedError as error:
            work.block(ledger, *await why_stuck(environment.client, ledger, error))
        else:
            work.unblock(ledger)
            work.add_progress(ledgers=1)
            return
        await wait_cancellable(work, asyncio.sleep(backoff.next_s()))


async def why_stuck(
    client: Client, ledger: LedgerId, error: RecoveryAbortedError
) -> tuple[str, str]:
    """The bookies that a recovery waits for, in limbo or away, and what the operator can do."""
    try:
        found = (await client.inspect_ledger(ledger)).diagnosis
    except BkboxError:
        return str(error), _ADVICE
    # Where the inspection finds no obstacle any more, the next try will succeed.
    return found.reason or str(error), found.what_to_do or _ADVICE
