"""Each metadata store, for the tests of what every store promises."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bkbox.metadata import init_cluster
from tests.harness.oxia import OXIA_SERVER, Oxia, real_uri
from tests.harness.zookeeper import ZooKeeper


@pytest.fixture(
    params=[
        "sqlite",
        "zookeeper",
        pytest.param("metadata-store", marks=pytest.mark.slow),
        "oxia",
        *(["oxia-server"] if OXIA_SERVER else []),
    ]
)
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URI of a new, empty cluster. ``oxia`` is a stand-in (tests/harness/oxia_server.py), ``oxia-server``
    a real one, if there is one.
    """
    if request.param == "sqlite":
        found = f"sqlite:{tmp_path}/cluster.db"
    elif request.param == "oxia":
        stand_in = request.getfixturevalue("oxia")
        assert isinstance(stand_in, Oxia)
        found = stand_in.uri(stand_in.new_namespace())
    elif request.param == "oxia-server":
        found = real_uri()
    else:
        server = request.getfixturevalue("zookeeper")
        assert isinstance(server, ZooKeeper)
        layout = "metadata-store" if request.param == "metadata-store" else ""
        found = server.uri(layout=layout)
    asyncio.run(init_cluster(found))
    return found
