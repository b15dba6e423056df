"""Limits that hold over several front-ends, whose counts are in shared memory."""

from __future__ import annotations

import itertools
import os
import random
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from bkbox.frontend.shared_counts import SharedCounts, SharedMemory
from bkbox.security.connection_limits import Peers, key_of_peer, peer_of
from bkbox.security.rates import Buckets, key_of_identity
from tests.harness.seeds import seed_of_the_commit

COUNT = 3


@pytest.fixture
def memory() -> Iterator[SharedMemory]:
    made = SharedMemory(COUNT)
    yield made
    made.close()


def all_counts(memory: SharedMemory) -> list[SharedCounts]:
    return [SharedCounts(memory.fd, number, COUNT) for number in range(COUNT)]


def peers_of(counts: SharedCounts, all_max: int = 100, per_peer_max: int = 0) -> Peers:
    made = Peers()
    made.total_max, made.all_max, made.per_peer_max = 1_000, all_max, per_peer_max
    made.shared = counts
    return made


def test_connections_in_all(memory: SharedMemory) -> None:
    peers = [peers_of(each, all_max=5) for each in all_counts(memory)]
    admitted = [each for each in peers * 3 if each.admit("10.0.0.1")]
    assert len(admitted) == 5
    assert sum(each.rejected for each in peers) == 4
    admitted[0].leave("10.0.0.1")
    assert peers[2].admit("10.0.0.2")
    assert not peers[1].admit("10.0.0.2")


def test_connections_of_a_peer(memory: SharedMemory) -> None:
    peers = [peers_of(each, per_peer_max=4) for each in all_counts(memory)]
    hosts = ("10.0.0.1", "10.0.0.2", "2001:db8::1", "2001:db8:0:1::1")
    for host in hosts:
        assert sum(each.admit(host) for each in peers * 4) == 4
    for host in hosts:
        next(each for each in peers if vars(each)["_by_peer"][peer_of(host)]).leave(host)
        assert sum(each.admit(host) for each in peers * 4) == 1
    assert not peers[0].admit("2001:db8::ffff"), "of the same network of 64 bits"


def test_what_a_front_end_that_ended_had_does_not_count(memory: SharedMemory) -> None:
    counts = all_counts(memory)
    peers = [peers_of(each, all_max=3, per_peer_max=2) for each in counts]
    assert [each.admit("10.0.0.1") for each in peers] == [True, True, False]
    memory.on_ended(0)
    assert peers[1].admit("10.0.0.1")
    assert not peers[2].admit("10.0.0.1")
    again = peers_of(SharedCounts(memory.fd, 0, COUNT), all_max=3, per_peer_max=2)
    assert not again.admit("10.0.0.1")
    assert again.admit("10.0.0.2")
    assert counts[1].connections() == 3


def test_the_last_place_is_not_given_twice(memory: SharedMemory) -> None:
    """Front-ends at the same time; here threads, which are switched as often as it goes."""
    peers = [peers_of(each, all_max=50) for each in all_counts(memory)]
    most = 0
    lock = threading.Lock()
    ends = threading.Barrier(COUNT)

    def churn(own: Peers) -> None:
        nonlocal most
        rng = random.Random(seed_of_the_commit())
        held: list[str] = []
        ends.wait(30)
        for number in range(3_000):
            if held and rng.random() < 0.4:
                with lock:
                    own.leave(held.pop())
            elif own.admit(f"10.0.{number % 5}.1"):
                held.append(f"10.0.{number % 5}.1")
                with lock:
                    most = max(most, sum(each.total for each in peers))

    threads = [threading.Thread(target=churn, args=(each,)) for each in peers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert 50 - COUNT <= most <= 50 + COUNT - 1, "those that are just being refused are in the sum"


def test_many_peers_come_and_go(memory: SharedMemory) -> None:
    """Against a count by hand, over more peers than a set of rows has room for at once."""
    one, two, _ = all_counts(memory)
    rng = random.Random(seed_of_the_commit())
    kept: dict[str, int] = {}
    for number in range(20_000):
        host = f"10.{number >> 16}.{(number >> 8) & 255}.{number & 255}"
        one.set_of_peer(host, 1 + number % 3)
        kept[host] = 1 + number % 3
        if len(kept) > 500:
            gone = rng.choice(list(kept))
            one.set_of_peer(gone, 0)
            del kept[gone]
    assert {host: two.of_peer(host) for host in kept} == kept
    assert two.of_peer("10.200.0.1") == 0


def test_keys_of_peers_are_different() -> None:
    hosts = [f"10.0.{a}.{b}" for a, b in itertools.product(range(20), range(20))]
    hosts += [f"2001:db8:{a:x}:{b:x}::1" for a, b in itertools.product(range(20), range(20))]
    hosts += ["::1", "0:0:0:1::1", "ffff:ffff:ffff:ffff::1"]
    keys = {key_of_peer(peer_of(host)) for host in hosts}
    assert len(keys) == len(hosts)
    assert 0 not in keys
    assert all(-(1 << 63) <= key < 1 << 63 for key in keys)


def test_a_surplus(memory: SharedMemory) -> None:
    one, two, _ = all_counts(memory)
    memory.on_ended(2)
    for own, other, expected in ((0, 0, False), (3, 0, False), (10, 0, True), (100, 90, False)):
        one.set_connections(own)
        two.set_connections(other)
        assert (one.has_surplus(), two.has_surplus()) == (expected, False)


# ---- rate limits --------------------------------------------------------------------------------


def buckets_of(counts: SharedCounts) -> Buckets:
    made = Buckets()
    made.times = counts
    return made


def test_a_rate_holds_over_all(memory: SharedMemory) -> None:
    buckets = [buckets_of(each).open("token/a", 10) for each in all_counts(memory)]
    now_s = time.monotonic()
    assert sum(each.try_acquire(now_s) for each in buckets * 20) == 10, "what a second brings"
    assert sum(each.try_acquire(now_s + 0.5) for each in buckets * 20) == 5
    assert sum(each.try_acquire(now_s + 9.0) for each in buckets * 20) == 10
    other = buckets_of(SharedCounts(memory.fd, 1, COUNT)).open("token/b", 3)
    assert [other.try_acquire(now_s + 9.0) for _ in range(4)] == [True, True, True, False]


def test_a_new_connection_over_another_front_end_fills_no_bucket(memory: SharedMemory) -> None:
    one, two, _ = map(buckets_of, all_counts(memory))
    now_s = time.monotonic()
    first = one.open("token/a", 5)
    assert sum(first.try_acquire(now_s) for _ in range(9)) == 5
    one.close("token/a")
    assert not two.open("token/a", 5).try_acquire(now_s)
    assert not one.open("token/a", 5).try_acquire(now_s)


def test_what_one_bucket_takes_does_not_depend_on_who_asks(memory: SharedMemory) -> None:
    """Random askers and pauses: never more than the rate in any second, plus what was saved."""
    buckets = [buckets_of(each).open("token/a", 7) for each in all_counts(memory)]
    rng = random.Random(seed_of_the_commit())
    began_s = now_s = time.monotonic()
    taken = 0
    for _ in range(5_000):
        now_s += rng.choice([0.0, 0.001, 0.05, 0.3])
        taken += rng.choice(buckets).try_acquire(now_s)
        assert taken <= 7 * (now_s - began_s) + 7 + 1e-6
    assert taken > 6 * (now_s - began_s)


class Interrupted:
    """The times of one front-end, while another takes a token between its look at them and what it does next."""

    def __init__(self, times: SharedCounts, meanwhile: Callable[[], object]) -> None:
        self._times = times
        self._meanwhile = meanwhile
        self.own_full_ns = times.own_full_ns
        self.others_full_ns = times.others_full_ns

    def set_full_ns(self, key: int, full_ns: int) -> None:
        self._meanwhile()
        self._meanwhile = lambda: None
        self._times.set_full_ns(key, full_ns)


@pytest.mark.parametrize("left", [1, 2, 3])
def test_two_that_take_a_token_at_the_same_moment(memory: SharedMemory, left: int) -> None:
    """Both tokens count, and the last one is given once at most."""
    mine, theirs, third = all_counts(memory)
    now_s = time.monotonic()
    one, other, last = (buckets_of(each).open("token/a", 10) for each in (mine, theirs, third))
    for _ in range(10 - left):
        assert last.try_acquire(now_s)
    taken = []
    at_once = Buckets()
    at_once.times = Interrupted(mine, lambda: taken.append(other.try_acquire(now_s)))
    taken.append(at_once.open("token/a", 10).try_acquire(now_s))
    assert sum(taken) == min(left, 2)
    rest = sum(each.try_acquire(now_s) for each in [one, other, last] * 10)
    assert sum(taken) + rest == left


def test_more_identities_than_rows(memory: SharedMemory) -> None:
    """Those that are idle make room; one that has no row is limited by each front-end alone."""
    counts = SharedCounts(memory.fd, 0, COUNT)
    now_ns = time.monotonic_ns()
    for number in range(20_000):
        counts.set_full_ns(key_of_identity(f"token/{number}"), now_ns - 1 + number % 2)
    counts.set_full_ns(key_of_identity("token/x"), now_ns + 10**12)
    assert counts.own_full_ns(key_of_identity("token/x")) in (now_ns + 10**12, 0)


def test_the_memory_is_private() -> None:
    made = SharedMemory(2)
    try:
        assert os.fstat(made.fd).st_mode & 0o777 == 0o600
    finally:
        made.close()
