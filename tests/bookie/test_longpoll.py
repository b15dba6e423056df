"""Whose wait is over: by an advance, by something else, by the deadline, or because nobody is there any more."""

from __future__ import annotations

import random

from bkbox.bookie.longpoll import LongPolls, Poll
from bkbox.wire import v3
from bkbox.wire.v3_format import Operation


def request(ledger: int = 1, previous: int = -1, txn: int = 0) -> v3.ReadRequest:
    header = v3.Header(Operation.READ_ENTRY, txn)
    return v3.ReadRequest(header, ledger, -1, previous_lac=previous)


def txns(polls: list[Poll]) -> list[int]:
    return sorted(poll.request.header.txn_id for poll in polls)


def parked(*polls: tuple[int, v3.ReadRequest, int]) -> LongPolls:
    made = LongPolls()
    for poll in polls:
        assert made.park(*poll)
    return made


def test_an_advance_ends_the_wait_of_those_it_passes() -> None:
    polls = parked(*((7, request(1, previous, previous), 100) for previous in (3, 4, 5)))
    assert txns(polls.advanced(2, 99)) == []
    assert txns(polls.advanced(1, 3)) == []
    assert txns(polls.advanced(1, 5)) == [3, 4]
    assert (len(polls), 1 in polls) == (1, True)
    assert txns(polls.advanced(1, 6)) == [5]
    assert (len(polls), 1 in polls, polls.next_deadline_ms) == (0, False, None)


def test_something_else_ends_all_waits_of_the_ledger() -> None:
    polls = parked((7, request(1, txn=1), 100), (8, request(1, 9, 2), 50), (7, request(2), 100))
    assert txns(polls.disturbed(1)) == [1, 2]
    assert polls.disturbed(1) == []
    assert 2 in polls


def test_a_deadline_ends_the_wait_once() -> None:
    polls = parked(
        (7, request(1, txn=1), 100), (7, request(1, txn=2), 50), (7, request(2, txn=3), 200)
    )
    assert polls.next_deadline_ms == 50
    assert txns(polls.expired(49)) == []
    assert txns(polls.expired(100)) == [1, 2]
    assert polls.next_deadline_ms == 200
    assert txns(polls.advanced(2, 0)) == [3]
    assert polls.expired(1_000) == []


def test_nobody_is_answered_on_a_closed_connection() -> None:
    polls = parked((7, request(1, txn=1), 100), (8, request(1, txn=2), 100), (7, request(2), 100))
    polls.drop(7)
    polls.drop(99)
    assert len(polls) == 1
    assert txns(polls.disturbed(1)) == [2]
    assert polls.expired(1_000) == []


def test_their_number_is_bounded() -> None:
    polls = LongPolls(polls_max=2)
    assert [polls.park(7, request(1, txn=n), 100) for n in range(3)] == [True, True, False]
    assert txns(polls.disturbed(1)) == [0, 1]
    assert polls.park(7, request(1), 100)


def test_what_is_over_takes_no_room() -> None:
    """A client that polls again and again leaves no trail of deadlines that are far away."""
    polls = LongPolls()
    for _ in range(10_000):
        polls.park(7, request(1), 300_000)
        polls.advanced(1, 0)
    assert len(polls._deadlines) < 2_000


def test_any_order_of_events_ends_every_wait_once() -> None:
    rng = random.Random(4)
    for _ in range(50):
        polls = LongPolls()
        ended: list[int] = []
        dropped: set[int] = set()
        connections = {n: rng.randrange(3) for n in range(60)}
        for n in range(60):
            polls.park(
                connections[n], request(rng.randrange(3), rng.randrange(5), n), rng.randrange(99)
            )
            action = rng.random()
            if action < 0.2:
                ended += txns(polls.advanced(rng.randrange(3), rng.randrange(6)))
            elif action < 0.3:
                ended += txns(polls.expired(rng.randrange(99)))
            elif action < 0.35:
                ended += txns(polls.disturbed(rng.randrange(3)))
            elif action < 0.4:
                gone = rng.randrange(3)
                dropped |= {m for m in range(n + 1) if connections[m] == gone} - set(ended)
                polls.drop(gone)
        ended += txns(polls.expired(100))
        assert sorted(ended) == sorted(set(range(60)) - dropped)
        assert len(polls) == 0
