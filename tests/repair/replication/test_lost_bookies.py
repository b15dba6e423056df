"""What an auditor remembers of bookies that come and go, and when ledgers are tried again."""

from __future__ import annotations

import random

from bkbox.base.ids import BookieId, LedgerId
from bkbox.repair.replication.lost_bookie_tracker import LostBookies
from bkbox.repair.replication.retry_schedule import RetrySchedule

A, B, C = (BookieId(name) for name in ("a:1", "b:2", "c:3"))
ALL = (A, B, C)


def seen(*absent: BookieId, at_s: float = 0.0, exempt: tuple[BookieId, ...] = ()) -> LostBookies:
    lost = LostBookies()
    lost.see(ALL, set(ALL) - set(absent), exempt, at_s)
    return lost


def test_a_single_lost_bookie_is_given_time_to_come_back() -> None:
    lost = seen(A)
    assert (lost.absent(), lost.awaited(60, 59.9), lost.due(60, 59.9)) == ([A], {A}, False)
    assert lost.spared(60, 59.9) == {A, B, C}
    assert (lost.awaited(60, 60), lost.due(60, 60)) == (frozenset(), True)
    assert lost.spared(60, 60) == {B, C}
    lost.see(ALL, ALL, (), 61)
    assert (lost.absent(), lost.due(60, 1000)) == ([], False)
    lost.see(ALL, (B, C), (), 100)
    assert lost.awaited(60, 120) == {A}, "its time begins anew with every loss"


def test_without_a_delay_or_where_several_are_lost_nobody_is_waited_for() -> None:
    assert seen(A).due(0, 0)
    assert seen(A, B).due(60, 0)
    lost = seen(A)
    lost.see(ALL, (C,), (), 10)
    assert lost.due(60, 10)


def test_what_was_looked_through_is_not_due_again() -> None:
    lost = seen(A)
    lost.audited(lost.awaited(60, 70))
    assert not lost.due(60, 70)
    assert lost.spared(60, 70) == {B, C}, "a ledger that is found to name it is marked all the same"
    lost.see(ALL, (C,), (), 80)
    assert (lost.awaited(60, 80), lost.due(60, 80)) == ({B}, False), "the next single one"
    assert lost.due(60, 140)
    lost.see(ALL, ALL, (), 150)
    lost.see(ALL, (B, C), (), 160)
    assert lost.due(60, 220), "it was back meanwhile"


def test_a_bookie_that_is_still_awaited_is_not_looked_through() -> None:
    lost = seen(A)
    lost.audited(lost.awaited(60, 10))
    assert lost.due(60, 60)


def test_who_is_exempt_is_not_lost_and_has_its_time_afterwards() -> None:
    lost = seen(A, B, exempt=(A,))
    assert (lost.absent(), lost.awaited(60, 0)) == ([B], {B})
    assert A in lost.spared(60, 100)
    lost.see(ALL, (B, C), (), 100)
    assert (lost.absent(), lost.awaited(60, 150), lost.due(60, 160)) == ([A], {A}, True)


def test_a_bookie_without_a_cookie_is_known_once_it_was_seen() -> None:
    lost = LostBookies()
    lost.see((), (A,), (), 0)
    lost.see((), (), (), 1)
    assert lost.absent() == [A]


def test_waits_grow_and_quarantine_ends_with_the_situation() -> None:
    ledger, other = LedgerId(1), LedgerId(2)
    waits = RetrySchedule(1.0, 8.0, random.Random(1))
    now_s, pauses = 0.0, []
    for _ in range(6):
        waits.failed(ledger, now_s)
        before_s = now_s
        while not waits.is_due(ledger, now_s):
            now_s += 0.01
        pauses.append(now_s - before_s)
    assert 0.5 <= pauses[0] <= 1.01
    assert pauses[-1] > 3.9
    assert max(pauses) <= 8.01
    assert waits.quarantine(ledger, "one", now_s, "no bookie has entry 5")
    assert not waits.quarantine(ledger, "two", now_s, "no bookie has entry 5"), "it is known"
    assert waits.quarantine(ledger, "one", now_s, "no bookie takes copies")
    waits.later(other, now_s + 5)
    assert waits.is_due(ledger, now_s)
    assert waits.is_quarantined(ledger, "one", now_s + 3.9)
    assert not waits.is_quarantined(ledger, "one", now_s + 8.1), "what came and went is not seen"
    assert not waits.is_quarantined(ledger, "two", now_s)
    assert (waits.has_quarantined(ledger), waits.quarantined()) == (True, 1)
    assert not waits.is_due(other, now_s + 4.9)
    assert waits.keep_only({other}) == [ledger]
    assert not waits.is_quarantined(ledger, "one", now_s)
    waits.forget(other)
    assert waits.is_due(other, 0.0)
