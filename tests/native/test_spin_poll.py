"""What comes while nobody sleeps yet, and what comes later."""

from __future__ import annotations

import os
import select
import threading

import pytest

from bkbox.native.spin_poll import SPIN_EVERY, SPINS_IN_VAIN, SpinPoll


@pytest.mark.parametrize("after_s", [0.0, 0.00001, 0.05])
def test_what_comes_is_seen_whenever_it_comes(after_s: float) -> None:
    event = os.eventfd(0, os.EFD_NONBLOCK)
    poll = select.epoll()
    poll.register(event, select.EPOLLIN)
    timer = threading.Timer(after_s, os.eventfd_write, (event, 1))
    timer.start()
    try:
        assert SpinPoll(poll).events(30) == [(event, select.EPOLLIN)]
    finally:
        timer.join()
        poll.close()
        os.close(event)


@pytest.mark.parametrize("wait_s", [0, 0.001])
def test_nothing_comes(wait_s: float) -> None:
    with select.epoll() as poll:
        assert SpinPoll(poll).events(wait_s) == []


class Others:
    """Counts the polls of spins; ``then`` is called in each."""

    def __init__(self) -> None:
        self.calls = 0
        self.then = lambda: None

    def __call__(self) -> None:
        self.calls += 1
        self.then()

    def has_run(self) -> bool:
        """Whether there was a spin since it was asked last."""
        calls, self.calls = self.calls, 0
        return calls > 0


def test_spins_in_vain_are_left_out_until_one_finds_something() -> None:
    others = Others()
    event = os.eventfd(0, os.EFD_NONBLOCK)
    with select.epoll() as poll:
        poll.register(event, select.EPOLLIN)
        spins = SpinPoll(poll, others)

        def spun() -> bool:
            spins.events(0.0001)
            return others.has_run()

        assert sum(spun() for _ in range(SPINS_IN_VAIN)) == SPINS_IN_VAIN
        later = [spun() for _ in range(3 * SPIN_EVERY)]
        assert sum(later) == 3, "every SPIN_EVERY-th tries again"
        others.then = lambda: os.eventfd_write(event, 1)
        while not spun():
            pass
        os.eventfd_read(event)
        others.then = lambda: None
        assert sum(spun() for _ in range(SPINS_IN_VAIN)) == SPINS_IN_VAIN
        assert not spun()
    os.close(event)
