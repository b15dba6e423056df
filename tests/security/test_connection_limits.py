"""How many connections there may be, in all and of one address."""

from __future__ import annotations

from bkbox.security.connection_limits import Peers


def test_in_all_and_of_one_address() -> None:
    peers = Peers()
    peers.total_max, peers.per_peer_max = 3, 2
    assert [peers.admit("a"), peers.admit("a"), peers.admit("a")] == [True, True, False]
    assert peers.admit("b")
    assert not peers.admit("c")
    assert (peers.total, peers.rejected) == (3, 2)
    peers.leave("a")
    assert peers.admit("c")
    for host in "abc":
        peers.leave(host)
    assert peers.total == 0
    assert not peers._by_peer


def test_without_a_bound_of_one_address() -> None:
    peers = Peers()
    peers.total_max = 1000
    assert all(peers.admit("a") for _ in range(1000))
    assert not peers.admit("b")
    assert list(peers._by_peer) == ["a"]


def test_a_host_has_many_addresses_of_ipv6() -> None:
    peers = Peers()
    peers.total_max, peers.per_peer_max = 10, 1
    assert peers.admit("2001:db8:0:1::1")
    assert not peers.admit("2001:db8:0:1:ffff::2")
    assert peers.admit("2001:db8:0:2::1")
    assert peers.admit("::ffff:10.0.0.1")
    assert peers.admit("::ffff:10.0.0.2")
    assert not peers.admit("10.0.0.2")
    assert peers.admit("fe80::1%eth0")
    assert not peers.admit("fe80::2%eth0")
