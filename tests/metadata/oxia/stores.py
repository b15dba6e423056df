"""Stores on the stand-in for Oxia, for its tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from bkbox.base.ids import BookieId, LedgerId
from bkbox.config.metadata_uri import OxiaUri, parse
from bkbox.metadata import init_cluster
from bkbox.metadata.oxia import OxiaStore
from bkbox.wire.metadata.service_info import rpc_service_info
from tests.harness.oxia import Oxia

BOOKIE = BookieId("127.0.0.1:3181")
INFO = rpc_service_info("127.0.0.1", 3181)
ONE = LedgerId(1)


@asynccontextmanager
async def store_in(
    oxia: Oxia, namespace: str, *, wait_s: float = 20.0, session_timeout_s: float = 10.0
) -> AsyncIterator[OxiaStore]:
    """A store; the cluster is created unless it exists."""
    uri = oxia.uri(namespace)
    if "/ledgers/INSTANCEID" not in oxia.records(namespace):
        await init_cluster(uri)
    parsed = parse(uri)
    assert isinstance(parsed, OxiaUri)
    async with await OxiaStore.open(
        parsed, wait_s=wait_s, session_timeout_s=session_timeout_s
    ) as store:
        yield store


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 60))
