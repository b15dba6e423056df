"""Routes of the admin API about ledgers in limbo: all of them, a page at a time.

``GET``  limbo?after=&limit=        ascending by id
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING

from bkbox.api.admin.limbo import LIMIT_MAX, LimboLedger, LimboPage
from bkbox.api.admin.routes import Query, Request, Route
from bkbox.api.admin.socket_path import LIMBO_URL
from bkbox.errors import BadRequestError
from bkbox.ipc.messages.disk import ListLedgers
from bkbox.ipc.messages.items import LEDGER_ITEM
from bkbox.ipc.messages.message import Page

if TYPE_CHECKING:
    from bkbox.supervisor.disks.disks import Disk
    from bkbox.supervisor.supervisor import Supervisor

_TIMEOUT_S = 5.0
_LIMIT = 100


def routes(bookie: Supervisor) -> tuple[Route, ...]:
    async def page(request: Request) -> object:
        after, limit = request.query.get("after", -1), request.query.get("limit", _LIMIT)
        if not 1 <= limit <= LIMIT_MAX:
            raise BadRequestError(f"query: limit is {limit}; it has to be 1 to {LIMIT_MAX}")
        return asdict(await _page(bookie, after, limit))

    return (
        Route(
            "GET",
            LIMBO_URL,
            page,
            "Ledgers in limbo, ascending, with what keeps them there where something does.",
            returns=LimboPage,
            query=(
                Query("after", "integer", "Only those with a greater id."),
                Query("limit", "integer", f"Largest number of ledgers: {_LIMIT} if not given."),
            ),
        ),
    )


async def _page(bookie: Supervisor, after: int, limit: int) -> LimboPage:
    disks = [disk for disk in bookie.disks if disk.usable]
    pages = await asyncio.gather(*(_of(disk, after) for disk in disks))
    # Beyond the end of a page that is not its disk's last, that disk may have more ledgers.
    known_to = min((ledgers[-1] for ledgers, more in pages if more), default=None)
    job = bookie.jobs.limbo() if bookie.jobs is not None else None
    blockers = {} if job is None else {blocker.ledger: blocker for blocker in job.blockers}
    found = []
    for disk, (ledgers, _more) in zip(disks, pages, strict=True):
        for ledger in ledgers:
            if known_to is None or ledger <= known_to:
                blocker = blockers.get(ledger)
                found.append(
                    LimboLedger(
                        ledger,
                        str(disk.path),
                        "" if blocker is None else blocker.reason,
                        "" if blocker is None else blocker.what_to_do,
                    )
                )
    found.sort(key=lambda each: each.ledger)
    more = known_to is not None or len(found) > limit
    return LimboPage(tuple(found[:limit]), more)


async def _of(disk: Disk, after: int) -> tuple[list[int], bool]:
    call = ListLedgers(after=after, limbo_only=True)
    page = await disk.call(call, timeout_s=_TIMEOUT_S)
    assert isinstance(page, Page)
    items = LEDGER_ITEM.iter_unpack(page.payload)
    return [ledger for ledger, _flags in items], page.more
