"""Ensembles of Apache's bookies and bkbox's, written by either client, read and recovered by either."""

from __future__ import annotations

import pytest

from tests.interop import scenarios as the
from tests.interop.clients import DIGESTS
from tests.interop.conftest import MakeCluster
from tests.interop.interopcluster import InteropCluster
from tests.interop.javaclient import JavaClient
from tests.interop.scenarios import Parties, Scenario, check_digest, scenarios

SIDES = [("java", "bkbox"), ("bkbox", "java")]
"""Who writes, and who reads, recovers and deletes."""
MATTERS = [
    the.quorum_sizes,
    the.read_while_written,
    the.recovery_fences,
    the.recovery_while_the_writer_hangs,
    the.concurrent_recoveries,
    the.batch_read,
    the.explicit_lac,
    the.deferred_sync,
    the.list_of_entries,
]
"""What depends on several bookies agreeing."""


@pytest.fixture(scope="module", params=[(2, 1), (1, 2)], ids=["java2-bkbox1", "java1-bkbox2"])
def cluster(request: pytest.FixtureRequest, make_cluster: MakeCluster) -> InteropCluster:
    java, bkbox = request.param
    return make_cluster(f"mixed-{java}-{bkbox}", java=java, bkbox=bkbox)


def parties(cluster: InteropCluster, sides: tuple[str, str], protocol: str) -> Parties:
    writer, reader = (cluster.client(f"{side}-{protocol}") for side in sides)
    return Parties(cluster, writer, reader)


@pytest.mark.parametrize("sides", SIDES, ids="-".join)
@pytest.mark.parametrize("digest", DIGESTS)
@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_digest(
    cluster: InteropCluster, protocol: str, digest: str, sides: tuple[str, str]
) -> None:
    check_digest(parties(cluster, sides, protocol), digest, b"secret")


@pytest.mark.parametrize("sides", SIDES, ids="-".join)
@pytest.mark.parametrize(("scenario", "protocol"), scenarios(MATTERS))
def test_scenario(
    cluster: InteropCluster, scenario: Scenario, protocol: str, sides: tuple[str, str]
) -> None:
    scenario(parties(cluster, sides, protocol))


@pytest.mark.parametrize("sides", SIDES, ids="-".join)
def test_a_bookie_dies(cluster: InteropCluster, sides: tuple[str, str]) -> None:
    """One of the kind of which there is only one; writer and reader speak different protocols."""
    (lonely,) = (kind for kind in ("java", "bkbox") if len(cluster.of_kind(kind)) == 1)
    writer, reader = cluster.client(f"{sides[0]}-v2"), cluster.client(f"{sides[1]}-v3")
    the.a_bookie_dies_of_kind(Parties(cluster, writer, reader), lonely)


def test_own_ids(cluster: InteropCluster) -> None:
    the.own_ids(Parties(cluster, cluster.client("java-v3"), cluster.client("bkbox-v2")))


def test_all_bookies_are_registered(cluster: InteropCluster) -> None:
    client = cluster.client("java-v3")
    assert isinstance(client, JavaClient)
    everybody = sorted(bookie.bookie_id for bookie in cluster.bookies)
    assert client.bookies() == {"writable": everybody, "readonly": [], "known": everybody}
