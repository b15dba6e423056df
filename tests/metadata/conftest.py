"""Each metadata store, for the tests of what every store promises."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bkbox.metadata import init_cluster
from tests.harness.zookeeper import ZooKeeper


@pytest.fixture(
    params=["sqlite", "zookeeper", pytest.param("metadata-store", marks=pytest.mark.slow)]
)
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URI of a new, empty cluster."""
    if request.param == "sqlite":
        found = f"sqlite:{tmp_path}/cluster.db"
    else:
        server = request.getfixturevalue("zookeeper")
        assert isinstance(server, ZooKeeper)
        layout = "metadata-store" if request.param == "metadata-store" else ""
        found = server.uri(layout=layout)
    asyncio.run(init_cluster(found))
    return found
