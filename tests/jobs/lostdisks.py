"""Bookies that have lost their disk, so that there is something to repair: entries written by hand, digest CRC32."""

from __future__ import annotations

import asyncio
import json
import shutil
from typing import Any

from bkbox.base.ids import BookieId, EntryId, LedgerId
from bkbox.metadata import connect
from bkbox.wire.metadata.ledger import DigestType, Fragment, LedgerMetadata, LedgerState
from tests.harness import raw
from tests.harness.processes import BookieProcess, bkbox
from tests.harness.waiting import wait_for


def payload(ledger: int, entry: int) -> bytes:
    return b"ledger %d entry %d " % (ledger, entry) * 20


def closed_ledger(ledger: int, bookies: list[BookieProcess], entries: int) -> None:
    """A closed ledger over all these bookies, with AQ = 1."""
    metadata = LedgerMetadata(
        LedgerId(ledger),
        len(bookies),
        len(bookies),
        1,
        LedgerState.CLOSED,
        (Fragment(EntryId(0), tuple(BookieId(bookie.bookie_id) for bookie in bookies)),),
        last_entry=EntryId(entries - 1),
        length=sum(len(payload(ledger, entry)) for entry in range(entries)),
        digest_type=DigestType.CRC32,
    )

    async def create() -> None:
        async with await connect(bookies[0].metadata) as store:
            await store.create_ledger(metadata)

    asyncio.run(create())
    for bookie in bookies:
        with raw.RawClient(bookie.port) as client:
            for entry in range(entries):
                client.send(raw.add_frame(ledger, entry, payload(ledger, entry)))
            assert {client.answer().code for _ in range(entries)} == {raw.EOK}


def lose_disk(bookie: BookieProcess) -> None:
    """The bookie comes back with an empty disk, and everything that it had is in limbo."""
    bookie.kill()
    shutil.rmtree(bookie.disks[0])
    bookie.disks[0].mkdir()
    bkbox("cookie", "repair", "--config", str(bookie.config), "--yes")
    bookie.start()


def job(bookie: BookieProcess, *arguments: str) -> Any:
    """The JSON that ``bkbox job …`` prints."""
    done = bkbox("job", *arguments, "--config", str(bookie.config), "-o", "json")
    return json.loads(done.stdout)


def only_job(bookie: BookieProcess) -> dict[str, Any]:
    """The one job that there is besides the check of its copies, which each start but the first begins, too."""

    def look() -> dict[str, Any] | None:
        found = [each for each in job(bookie, "list") if each["kind"] != "check"]
        assert len(found) <= 1
        return found[0] if found else None

    found: dict[str, Any] = wait_for(look, "a job")
    return found


def wait_for_state(bookie: BookieProcess, number: int, *states: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        found: dict[str, Any] = job(bookie, "show", str(number))
        return found if found["state"] in states else None

    found: dict[str, Any] = wait_for(look, f"job {number} to be {states}", timeout=60)
    return found
