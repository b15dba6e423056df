"""Who waits before it is looked at, after nonsense from its address, and for how long."""

from __future__ import annotations

import socket
import time
from contextlib import suppress

from bkbox.frontend.overload.protocol_error_throttle import (
    FREE_ERRORS,
    PAUSE_S,
    WINDOW_S,
    ProtocolErrorThrottle,
)
from tests.harness import raw
from tests.harness.fixtures import MakeBookie
from tests.harness.raw import RawClient

HERE, THERE = "192.0.2.1", "192.0.2.2"


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_few_errors_are_forgiven_and_others_are_not_blamed_for_them() -> None:
    penalty: ProtocolErrorThrottle[str] = ProtocolErrorThrottle(Clock())
    for _ in range(FREE_ERRORS):
        penalty.record_error(HERE)
    assert not penalty.is_throttled(HERE)
    penalty.record_error(HERE)
    assert penalty.is_throttled(HERE)
    assert not penalty.is_throttled(THERE)


def test_it_is_over_after_a_while() -> None:
    clock = Clock()
    penalty: ProtocolErrorThrottle[str] = ProtocolErrorThrottle(clock)
    for _ in range(FREE_ERRORS + 1):
        penalty.record_error(HERE)
    clock.now_s += WINDOW_S + 0.1
    assert not penalty.is_throttled(HERE)
    penalty.record_error(HERE)
    assert not penalty.is_throttled(HERE), "it begins anew"


def test_hosts_of_one_network_of_ipv6_are_one() -> None:
    penalty: ProtocolErrorThrottle[str] = ProtocolErrorThrottle(Clock())
    for number in range(FREE_ERRORS + 1):
        penalty.record_error(f"2001:db8::{number:x}")
    assert penalty.is_throttled("2001:db8::ffff")
    assert not penalty.is_throttled("2001:db8:0:1::1")


def test_those_held_come_in_their_order_each_after_the_pause() -> None:
    clock = Clock()
    penalty: ProtocolErrorThrottle[str] = ProtocolErrorThrottle(clock)
    assert penalty.wait_s() is None
    penalty.delay("first")
    clock.now_s += PAUSE_S / 2
    penalty.delay("second")
    assert penalty.wait_s() == PAUSE_S / 2
    assert penalty.pop_expired() == []
    clock.now_s += PAUSE_S / 2
    assert penalty.pop_expired() == ["first"]
    assert penalty.clear() == ["second"]
    assert not penalty


def test_nonsense_again_and_again_is_slowed_down_and_who_is_here_is_not(
    make_bookie: MakeBookie,
) -> None:
    bookie = make_bookie(disks=1, frontends=1).start()  # each of several counts by itself
    with RawClient(bookie.port) as good:
        assert good.add(1, 0, b"x") == raw.EOK
        for _ in range(FREE_ERRORS + 1):
            _nonsense(bookie.port)
        began = time.monotonic()
        _nonsense(bookie.port)
        assert time.monotonic() - began > PAUSE_S / 2
        assert good.add(1, 1, b"x") == raw.EOK
        with RawClient(bookie.port) as late:
            assert late.read(1, 1).code == raw.EOK, "whoever comes from there waits, and is served"


def _nonsense(port: int) -> None:
    """Returns when the connection has been closed."""
    with socket.create_connection(("127.0.0.1", port), 30) as sock:
        sock.sendall(b"\x7f\xff\xff\xff")
        with suppress(ConnectionResetError):
            assert sock.recv(1) == b""
