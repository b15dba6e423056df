"""The HTTP paths of Apache's bookie about the cluster: ledgers and bookies (see bookie.py)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from bkbox.api.admin.routes import Query, Request, Route, TextResponse
from bkbox.api.java import models
from bkbox.base.ids import LedgerId, ledger_id
from bkbox.errors import NoSuchLedgerError

if TYPE_CHECKING:
    from bkbox.api.shared import Api
    from bkbox.metadata.base import MetadataStore

LEDGER = "/api/v1/ledger"
BOOKIE = "/api/v1/bookie"
_LISTED_MAX = 1_000_000
"""Maximum number of ledgers in one response: more than a caller needs, and less than fills the supervisor's memory."""


def routes(api: Api) -> tuple[Route, ...]:
    return (*_of_ledgers(api), *_of_bookies(api))


# ---- ledgers ----------------------------------------------------------------------------------------


def _of_ledgers(api: Api) -> tuple[Route, ...]:
    async def list_all(request: Request) -> object:
        query, page = request.query, request.query.get("page", 0)
        if not query.get("print_metadata"):
            return {str(ledger): None async for ledger in _ledgers(api.store)}
        first = (page - 1) * models.PAGE_LEDGERS if page else 0
        found: dict[str, object] = {}
        number = -1
        async for ledger in _ledgers(api.store):
            number += 1
            if number < first:
                continue
            if page and number >= first + models.PAGE_LEDGERS:
                break
            try:
                metadata = (await api.store.read_ledger(ledger)).value
            except NoSuchLedgerError:
                continue  # deleted meanwhile
            found[str(ledger)] = models.ledger_of(metadata)
        return found

    async def metadata(request: Request) -> object:
        ledger = _ledger(request)
        found = await api.store.read_ledger(ledger)
        return {str(ledger): models.ledger_of(found.value)}

    async def delete(request: Request) -> object:
        ledger = _ledger(request)
        await api.store.delete_ledger(ledger)
        return f"Deleted ledger: {ledger}"

    which = Query("ledger_id", "integer", "The ledger.", required=True)
    return (
        Route(
            "GET",
            f"{LEDGER}/list",
            list_all,
            "All ledgers of the cluster.",
            returns=dict[str, object],
            query=(
                Query("print_metadata", "boolean", "With their metadata, without the password."),
                Query("decode_meta", "boolean", "Taken as true: metadata is always an object."),
                Query(
                    "page", "integer", f"With print_metadata: {models.PAGE_LEDGERS} a page, from 1."
                ),
            ),
            java=True,
        ),
        Route(
            "GET",
            f"{LEDGER}/metadata",
            metadata,
            "A ledger's metadata, without its password.",
            returns=dict[str, object],
            query=(which,),
            java=True,
        ),
        Route(
            "DELETE",
            f"{LEDGER}/delete",
            delete,
            "Delete a ledger.",
            returns=str,
            query=(which,),
            java=True,
        ),
    )


async def _ledgers(store: MetadataStore) -> AsyncIterator[LedgerId]:
    count = 0
    async for page in store.ledger_ranges():
        for ledger in page:
            yield ledger
            count += 1
            if count == _LISTED_MAX:
                return


def _ledger(request: Request) -> LedgerId:
    return ledger_id(request.query["ledger_id"])


# ---- bookies ----------------------------------------------------------------------------------------


def _of_bookies(api: Api) -> tuple[Route, ...]:
    async def list_all(request: Request) -> object:
        only_read_only = request.query.get("type") == "ro"
        registered = await api.store.bookies()
        return {
            str(name): _host(there.service_info.rpc)
            if request.query.get("print_hostnames")
            else None
            for name, there in registered.items()
            if there.read_only == only_read_only
        }

    async def info(_request: Request) -> object:
        spaces = await _spaces(api.store)
        if not spaces:
            return TextResponse("Not found any Bookie info.", status=404)
        return models.bookie_info(spaces)

    async def cluster(_request: Request) -> object:
        tree, registered = api.store.under_replication, await api.store.bookies()
        known = await api.store.cookies()
        auditor = await tree.auditor()
        read_only = sum(bookie.read_only for bookie in registered.values())
        return asdict(
            models.ClusterInfo(
                auditorElected=auditor is not None,
                auditorId=auditor or "",
                clusterUnderReplicated=await _has_any(tree.ledgers()),
                ledgerReplicationEnabled=await tree.enabled(),
                totalBookiesCount=len({*registered, *known}),
                writableBookiesCount=len(registered) - read_only,
                readonlyBookiesCount=read_only,
                unavailableBookiesCount=len({*known} - {*registered}),
            )
        )

    return (
        Route(
            "GET",
            f"{BOOKIE}/list_bookies",
            list_all,
            "The registered bookies.",
            returns=dict[str, str | None],
            query=(
                Query("type", "string", "rw (else) or ro."),
                Query("print_hostnames", "boolean", "With their hosts."),
            ),
            java=True,
        ),
        Route(
            "GET",
            f"{BOOKIE}/list_bookie_info",
            info,
            "Room on the bookies of the cluster, in text.",
            returns=dict[str, str],
            statuses=(404,),
            java=True,
        ),
        Route(
            "GET",
            f"{BOOKIE}/cluster_info",
            cluster,
            "The number of bookies, and the auditor's id.",
            returns=models.ClusterInfo,
            java=True,
        ),
    )


def _host(rpc: tuple[str, int] | None) -> str | None:
    return None if rpc is None else rpc[0]


async def _spaces(store: MetadataStore) -> dict[str, tuple[int, int]]:
    """Free and total bytes of each registered bookie that reports them."""
    from bkbox.client.connection.addresses import Addresses
    from bkbox.client.connection.pool import BookiePool, DiskSpace
    from bkbox.client.options import ClientOptions

    pool = BookiePool(Addresses(store).find, ClientOptions(), random.Random())  # noqa: S311 jitter
    try:
        names = sorted(await store.bookies())
        replies = await asyncio.gather(*map(pool.bookie_info, names))
    finally:
        await pool.close()
    return {
        str(name): (one.free_bytes, one.total_bytes)
        for name, one in zip(names, replies, strict=True)
        if isinstance(one, DiskSpace)
    }


async def _has_any(ledgers: AsyncIterator[LedgerId]) -> bool:
    async for _ledger_id in ledgers:
        return True
    return False
