"""The end of a run: every ledger is closed and read, and each bookie is asked for its entries of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bkbox.base.ids import BookieId, LedgerId
from bkbox.client import Client
from bkbox.errors import BkboxError
from bkbox.wire.availability import Availability
from bkbox.wire.codes import Code
from bkbox.wire.metadata.ledger import LedgerMetadata
from proof.chaos.history import History
from proof.chaos.load import failure_of, read
from proof.checks.readable import JUDGE

_LEDGERS_AT_ONCE = 8
_TRIES = 20
_PAUSE_S = 1.0


async def read_all(
    client: Client, history: History, on_progress: Callable[[int, int], None]
) -> None:
    """``on_progress``: ledgers done, and their number. Entries that could not be read are missing in the history."""
    ledgers = [ledger async for ledger in client.ledgers()]
    slots = asyncio.Semaphore(_LEDGERS_AT_ONCE)
    done = 0

    async def one(ledger: LedgerId) -> None:
        nonlocal done
        async with slots:
            metadata = await _read(client, history, ledger)
            if metadata is not None:
                for bookie in sorted(metadata.bookies()):
                    await _ask(client, history, bookie, ledger)
            done += 1
            on_progress(done, len(ledgers))

    await asyncio.gather(*map(one, ledgers))


async def _read(client: Client, history: History, ledger: LedgerId) -> LedgerMetadata | None:
    """Closes and reads one ledger, with retries; None if it fails for good."""
    for _ in range(_TRIES):
        operation = history.begin("recover", by=JUDGE, ledger=ledger)
        try:
            reader = await client.open_ledger(ledger)
        except BkboxError as error:
            failed = failure_of(error)
            history.end(operation, failed.outcome, by=JUDGE, ledger=ledger, error=failed.error)
        else:
            last = reader.metadata.last_entry
            history.end(operation, "ok", by=JUDGE, ledger=ledger, last=last)
            if last < 0 or await read(history, JUDGE, reader, 0, last):
                return reader.metadata
        await asyncio.sleep(_PAUSE_S)
    return None


async def _ask(client: Client, history: History, bookie: BookieId, ledger: LedgerId) -> None:
    for _ in range(_TRIES):
        found = await client.pool.list_entries(bookie, ledger)
        if isinstance(found, Availability):
            history.note("holds", bookie=bookie, ledger=ledger, ranges=_ranges(found))
            return
        if found in (Code.ENOLEDGER, Code.ENOENTRY):
            history.note("holds", bookie=bookie, ledger=ledger, ranges=[])
            return
        await asyncio.sleep(_PAUSE_S)


def _ranges(entries: Availability) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for entry in sorted(entries):
        if found and found[-1][1] == entry - 1:
            found[-1] = found[-1][0], entry
        else:
            found.append((entry, entry))
    return found
