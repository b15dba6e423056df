"""One client against three bookies of one kind.

Apache's on Apache's is the reference: it shows that what the scenarios demand is right. Apache's
client on bkbox's bookies, and bkbox's client on Apache's, cannot tell the difference.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from tests.interop.clients import DIGESTS
from tests.interop.conftest import MakeCluster
from tests.interop.interopcluster import InteropCluster
from tests.interop.scenarios import Parties, Scenario, check_digest, own_ids, scenarios

Sides = tuple[str, InteropCluster]
"""Whose client, and the cluster."""


@pytest.fixture(scope="module")
def three_of(make_cluster: MakeCluster) -> Callable[[str], InteropCluster]:
    """The cluster of a kind, started when it is needed first."""
    return functools.cache(lambda kind: make_cluster(f"three-{kind}", **{kind: 3}))


@pytest.fixture(
    scope="module",
    params=[("java", "java"), ("java", "bkbox"), ("bkbox", "java")],
    ids=["java-on-java", "java-on-bkbox", "bkbox-on-java"],
)
def sides(request: pytest.FixtureRequest, three_of: Callable[[str], InteropCluster]) -> Sides:
    client, bookies = request.param
    return client, three_of(bookies)


def alone(sides: Sides, protocol: str) -> Parties:
    """The client writes and reads."""
    kind, cluster = sides
    client = cluster.client(f"{kind}-{protocol}")
    return Parties(cluster, client, client)


@pytest.mark.parametrize("password", [b"", b"secret"], ids=["open", "password"])
@pytest.mark.parametrize("digest", DIGESTS)
@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_digest(sides: Sides, protocol: str, digest: str, password: bytes) -> None:
    check_digest(alone(sides, protocol), digest, password)


@pytest.mark.parametrize(("scenario", "protocol"), scenarios())
def test_scenario(sides: Sides, scenario: Scenario, protocol: str) -> None:
    scenario(alone(sides, protocol))


@pytest.mark.parametrize("writer", ["java-v3", "bkbox-v2"])
def test_own_ids(sides: Sides, writer: str) -> None:
    kind, cluster = sides
    own_ids(Parties(cluster, cluster.client(writer), cluster.client(f"{kind}-v3")))
