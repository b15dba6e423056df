"""Finds the ledgers of a cluster whose recovery cannot end, because the bookies that would have to respond are in
limbo.

After a power cut of AQ hosts or more under ``ack_after = write`` there may be many of them, and they are ended
together. A ledger that also waits for a bookie that is away, and may remember, is listed and left alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from bkbox.base.ids import LedgerId
from bkbox.client.client import Client
from bkbox.client.ledger.force_close import ForceClose
from bkbox.client.ledger.ledger_inspection import LedgerInspection
from bkbox.errors import MetadataError, MetadataUnavailableError, NoSuchLedgerError
from bkbox.protocol.diagnosis import Diagnosis
from bkbox.protocol.force_close_plan import ForceClosePlan
from bkbox.repair.bounded_gather import bounded_gather
from bkbox.wire.metadata.ledger import LedgerState

_LEDGERS_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class StuckLedger:
    """A ledger that only an operator can end, and the consequences of that."""

    force_close: ForceClose
    plan: ForceClosePlan
    inspection: LedgerInspection


@dataclass(frozen=True, slots=True)
class StuckLedgers:
    """``stuck``: by id. ``waiting``: recovery cannot end now, and a bookie that comes back may change that, each with
    its diagnosis. ``unread``: ledgers whose metadata cannot be used, each with the reason.
    """

    stuck: tuple[StuckLedger, ...]
    waiting: tuple[Diagnosis, ...]
    unread: tuple[tuple[LedgerId, str], ...]


async def stuck_ledgers(client: Client, *, plug: bool) -> StuckLedgers:
    """Examine every ledger that is not closed; nothing is changed. Raises MetadataUnavailableError."""
    stuck: list[StuckLedger] = []
    waiting: list[Diagnosis] = []
    unread: list[tuple[LedgerId, str]] = []

    async def inspect(ledger: LedgerId) -> None:
        try:
            if (await client.metadata(ledger)).state is LedgerState.CLOSED:
                return
            found = (await client.inspect_ledger(ledger)).diagnosis
            if found.stuck and not found.forgotten:
                waiting.append(found)
            if not found.forgotten:
                return
            force_close = await client.force_close(ledger, plug=plug)
            plan, inspection = await force_close.plan()
        except NoSuchLedgerError:
            return  # deleted since
        except MetadataUnavailableError:
            raise
        except MetadataError as error:
            unread.append((ledger, str(error)))
            return
        if plan.closes and not plan.nothing_to_do:
            stuck.append(StuckLedger(force_close, plan, inspection))

    await bounded_gather([each async for each in client.ledgers()], inspect, _LEDGERS_AT_ONCE)
    return StuckLedgers(
        tuple(sorted(stuck, key=lambda each: each.plan.metadata.ledger_id)),
        tuple(sorted(waiting, key=lambda each: each.metadata.ledger_id)),
        tuple(sorted(unread)),
    )
