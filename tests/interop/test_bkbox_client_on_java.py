"""bkbox's client against three of Apache's bookies."""

from __future__ import annotations

import pytest

from tests.interop.clients import DIGESTS
from tests.interop.conftest import MakeCluster
from tests.interop.interopcluster import InteropCluster
from tests.interop.scenarios import Parties, Scenario, check_digest, scenarios


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> InteropCluster:
    return make_cluster("java-for-bkbox", java=3)


@pytest.mark.parametrize("password", [b"", b"secret"], ids=["open", "password"])
@pytest.mark.parametrize("digest", DIGESTS)
@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_digest(cluster: InteropCluster, protocol: str, digest: str, password: bytes) -> None:
    client = cluster.client(f"bkbox-{protocol}")
    check_digest(Parties(cluster, client, client), digest, password)


@pytest.mark.parametrize(("scenario", "protocol"), scenarios())
def test_scenario(cluster: InteropCluster, scenario: Scenario, protocol: str) -> None:
    client = cluster.client(f"bkbox-{protocol}")
    scenario(Parties(cluster, client, client))
