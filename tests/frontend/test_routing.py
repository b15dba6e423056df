"""Which disk a ledger is given, and when nothing may be said."""

from __future__ import annotations

from bkbox.frontend.routing import Places, Unroutable
from bkbox.kernel.routes import Routes

UP = [True, True]


def test_a_ledger_stays_where_it_is_recorded() -> None:
    places = Places(["a", "b"], Routes())
    places.record(1, [10, 11])
    assert [places.choose(ledger, UP, UP) for ledger in (10, 11)] == [1, 1]
    assert places.choose(10, [True, False], UP) == 1


def test_nothing_is_placed_before_every_disk_has_listed_its_ledgers() -> None:
    places = Places(["a", "b"], Routes())
    places.listed(0)
    assert places.choose(5, UP, UP) is Unroutable.UNLISTED
    assert places.find(5) is None
    places.listed(1)
    assert places.choose(5, UP, UP) in (0, 1)


def test_nothing_is_placed_while_a_disk_is_marked_and_what_it_listed_stays_known() -> None:
    places = all_listed("a", "b")
    places.record(1, [7])
    places.unlisted(1)
    assert places.choose(8, [True, False], UP) is Unroutable.UNLISTED
    assert places.choose(7, [True, False], UP) == 1
    places.listed(1)
    assert places.choose(8, UP, UP) == 0


def all_listed(*disks: str) -> Places:
    places = Places(disks, Routes())
    for number in range(len(disks)):
        places.listed(number)
    return places


def test_new_ledgers_are_spread_by_number() -> None:
    places = all_listed("a", "b", "c")
    places.record(0, range(100, 103))
    up = [True] * 3
    chosen = [places.choose(ledger, up, up) for ledger in range(6)]
    assert sorted(map(str, chosen)) == ["1", "1", "1", "2", "2", "2"]


def test_read_only_disks_get_new_ledgers_only_where_there_is_no_other() -> None:
    places = all_listed("a", "b")
    assert {places.choose(ledger, UP, [False, True]) for ledger in range(5)} == {1}
    assert places.choose(9, [True, False], [False, False]) == 0
    assert places.choose(10, [False, False], UP) is Unroutable.NO_DISK


def test_a_ledger_that_moved_is_counted_once() -> None:
    places = all_listed("a", "b")
    places.record(0, [1, 2, 3])
    places.record(1, [1, 2, 3])
    assert places.choose(4, UP, UP) == 0
