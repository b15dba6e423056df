"""Where a client looks for a bookie while its metadata store is away."""

from __future__ import annotations

import asyncio

from bkbox.base.ids import BookieId
from bkbox.client.connection.addresses import Addresses
from bkbox.metadata import connect, init_cluster
from bkbox.wire.metadata.service_info import HostPort, rpc_service_info
from tests.harness.zookeeper import ZooKeeper


def test_an_address_is_remembered(zookeeper: ZooKeeper) -> None:
    """Also when the bookie has lost its registration."""

    async def test() -> None:
        uri = zookeeper.uri()
        await init_cluster(uri)
        async with await connect(uri) as store, await connect(uri) as theirs:
            addresses = Addresses(store)
            assert await addresses.find(BookieId("ida")) is None
            info = rpc_service_info("10.0.0.5", 3181)
            registration = await theirs.register(BookieId("ida"), info, read_only=False)
            assert await addresses.find(BookieId("ida")) == HostPort("10.0.0.5", 3181)
            await registration.close()
            assert await addresses.find(BookieId("ida")) == HostPort("10.0.0.5", 3181)
            zookeeper.suspend()
            try:
                assert await addresses.find(BookieId("ida")) == HostPort("10.0.0.5", 3181)
                assert await addresses.find(BookieId("127.0.0.1:7")) == HostPort("127.0.0.1", 7)
                assert await addresses.find(BookieId("otto")) is None
            finally:
                zookeeper.resume()

    asyncio.run(test())
