"""What comes while nobody sleeps yet, and what comes later."""

from __future__ import annotations

import os
import select
import threading

import pytest

from bkbox.native.spin_poll import poll_events


@pytest.mark.parametrize("after_s", [0.0, 0.00001, 0.05])
def test_what_comes_is_seen_whenever_it_comes(after_s: float) -> None:
    event = os.eventfd(0, os.EFD_NONBLOCK)
    poll = select.epoll()
    poll.register(event, select.EPOLLIN)
    timer = threading.Timer(after_s, os.eventfd_write, (event, 1))
    timer.start()
    try:
        assert poll_events(poll, 30) == [(event, select.EPOLLIN)]
    finally:
        timer.join()
        poll.close()
        os.close(event)


@pytest.mark.parametrize("wait_s", [0, 0.001])
def test_nothing_comes(wait_s: float) -> None:
    with select.epoll() as poll:
        assert poll_events(poll, wait_s) == []
