"""Who waits for a ledger between two disks, and how long."""

from __future__ import annotations

from bkbox.frontend.paused_ledgers import PausedLedgers

PATIENCE_S = 3.0


class Waiting:
    def __init__(self) -> None:
        self.woken = 0

    def on_slot_free(self) -> None:
        self.woken += 1


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_requests_wait_until_the_place_is_told() -> None:
    clock, waiter = Clock(), Waiting()
    holds = PausedLedgers(clock, PATIENCE_S)
    holds.begin(7, 2)
    assert holds.within_timeout(7)
    assert not holds.within_timeout(8)
    holds.wait(waiter)
    assert holds.wait_s() == PATIENCE_S
    assert holds.end(7) == 2
    assert waiter.woken == 1
    assert not holds.within_timeout(7)
    assert holds.end(7) is None
    assert waiter.woken == 1, "once"


def test_nobody_waits_too_long() -> None:
    clock, waiter = Clock(), Waiting()
    holds = PausedLedgers(clock, PATIENCE_S)
    assert holds.wait_s() is None
    holds.begin(7, 0)
    assert holds.wait_s() is None, "nobody waits for it"
    holds.wait(waiter)
    clock.now += 2.0
    holds.tick()
    assert (waiter.woken, holds.wait_s()) == (0, 1.0)
    clock.now += 1.0
    holds.tick()
    assert waiter.woken == 1
    assert not holds.within_timeout(7)
    assert holds.end(7) == 0, "it is held all the same"


def test_the_oldest_hold_decides_when_to_look() -> None:
    clock = Clock()
    holds = PausedLedgers(clock, PATIENCE_S)
    holds.begin(1, 0)
    clock.now += 1.0
    holds.begin(2, 0)
    first, second = Waiting(), Waiting()
    holds.wait(first)
    holds.wait(second)
    assert holds.wait_s() == 2.0
    clock.now += 2.0
    holds.tick()
    assert (first.woken, second.woken) == (1, 1)
    assert not holds.within_timeout(1)
    assert holds.within_timeout(2), "who waits for it asks again and waits on"
    holds.wait(second)
    assert holds.wait_s() == 1.0
