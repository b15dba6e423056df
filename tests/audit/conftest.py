"""One cluster of bkbox's bookies for all tests of the audit that do not need more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bkbox.metadata import create
from tests.repair.copies import Cluster


@pytest.fixture(scope="module")
def bookies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three of them, on SQLite. Their garbage is collected when they are told to."""
    pytest.importorskip("pyarrow")
    cluster = Cluster(tmp_path_factory.mktemp("audit"))
    cluster.start(3, gc_interval_s=86_400, gc_trash_s=0)
    yield cluster
    cluster.close()


@pytest.fixture
def cluster(bookies: Cluster, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The same, without the ledgers of tests before."""
    import asyncio

    async def empty() -> None:
        async with await create(bookies.uri) as store:
            async for page in store.ledger_ranges():
                for ledger in page:
                    await store.delete_ledger(ledger)

    asyncio.run(empty())
    return bookies
