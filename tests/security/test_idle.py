"""Idle connections, in a number that a test can afford; idle.py takes as many as one likes."""

from __future__ import annotations

from tests.harness.fixtures import MakeBookie
from tests.harness.waiting import wait_for
from tests.security.idle import run

CONNECTIONS = 1_500


def test_idle_connections_cost_little_and_leave_nothing(make_bookie: MakeBookie) -> None:
    bookie = make_bookie(disks=1, frontends=1).start()
    [frontend] = bookie.children("frontend")
    descriptors = frontend.num_fds()
    found = run(bookie, CONNECTIONS, seconds=1.0)
    assert found.descriptors > CONNECTIONS
    assert found.bytes_each < 10_000
    wait_for(lambda: frontend.num_fds() <= descriptors, "the descriptors to be given back")
    assert found.during.rate > 0
