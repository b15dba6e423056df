"""A real server, where OXIA_SERVER names one: the contract of all stores runs on it, too (tests/metadata/conftest.py).

This one says whether there was one.
"""

from __future__ import annotations

import asyncio

from bkbox.metadata import connect, init_cluster
from tests.harness.oxia import real_uri
from tests.metadata.metadata_peer import ledger_of


def test_a_real_server() -> None:
    uri = real_uri()

    async def scenario() -> None:
        await init_cluster(uri)
        async with await connect(uri) as store:
            ledger = await store.new_ledger_id()
            watch = store.watch_ledger(ledger)
            assert await anext(watch) is None
            created = await store.create_ledger(ledger_of(ledger))
            assert await anext(watch) == created

    asyncio.run(scenario())
