"""Racks out of a znode, as Pulsar keeps them, in a real ZooKeeper."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from bkbox.base.ids import BookieId
from bkbox.client import ClientOptions
from bkbox.client.placement.topology import DEFAULT_RACK, topology_of
from bkbox.metadata import connect, create, init_cluster
from tests.harness.zookeeper import ZooKeeper

HOSTS = {BookieId("bookie-0"): "10.0.0.1", BookieId("bookie-1"): "10.0.0.2"}
PULSAR = {"default": {"bookie-0": {"rack": "/r1", "hostname": "one"}, "bookie-1": {"rack": "r2"}}}


async def racks(uri: str, rack_map: str) -> list[str]:
    async with await connect(uri) as store:
        topology = topology_of(ClientOptions(rack_map=rack_map), store)
        return list((await topology.racks(HOSTS)).values())


def test_the_znode_of_pulsar(
    zookeeper: ZooKeeper,
    caplog: pytest.LogCaptureFixture,
) -> None:
    root = zookeeper.new_root()
    uri = zookeeper.uri(root)
    asyncio.run(init_cluster(uri))
    path = f"{root.rpartition('/')[0]}/bookies"
    with zookeeper.client() as client:
        client.create(path, json.dumps(PULSAR).encode())
    assert asyncio.run(racks(uri, f"znode:{path}")) == ["/r1", "/r2"]
    assert caplog.messages == []
    assert asyncio.run(racks(uri, "znode:/no/such")) == [DEFAULT_RACK] * 2
    assert "rack map znode:/no/such: there is no znode /no/such" in caplog.messages[0]


def test_a_store_without_znodes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    uri = f"sqlite:{tmp_path / 'cluster.db'}"

    async def test() -> list[str]:
        async with await create(uri):
            return await racks(uri, "znode:/bookies")

    assert asyncio.run(test()) == [DEFAULT_RACK] * 2
    assert "the metadata store is not ZooKeeper" in caplog.messages[0]
