"""Which disk a ledger is given, and when nothing may be said."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from bkbox.frontend.disk_selection import DiskSelection
from bkbox.frontend.ledger_directory import MIGRATING, LedgerDirectory, Unroutable
from bkbox.frontend.loop.routing import Routes

UP = [True, True]


def test_a_ledger_stays_where_it_is_recorded() -> None:
    places = LedgerDirectory(["a", "b"], Routes())
    places.record(1, [10, 11])
    assert [places.choose(ledger, UP, UP) for ledger in (10, 11)] == [1, 1]
    assert places.choose(10, [True, False], UP) == 1


def test_nothing_is_placed_before_every_disk_has_listed_its_ledgers() -> None:
    places = LedgerDirectory(["a", "b"], Routes())
    places.listed(0)
    assert places.choose(5, UP, UP) is Unroutable.UNLISTED
    assert places.find(5) is None
    places.listed(1)
    assert places.choose(5, UP, UP) in (0, 1)


def test_nothing_is_placed_while_a_disk_is_marked_and_what_it_listed_stays_known() -> None:
    places = all_listed("a", "b")
    places.record(1, [7])
    places.on_list_lost(1)
    assert places.choose(8, [True, False], UP) is Unroutable.UNLISTED
    assert places.choose(7, [True, False], UP) == 1
    places.listed(1)
    assert places.choose(8, [True, False], UP) == 0


def all_listed(*disks: str) -> LedgerDirectory:
    places = LedgerDirectory(disks, Routes())
    for number in range(len(disks)):
        places.listed(number)
    return places


def chosen(places: LedgerDirectory, ledgers: int, disks: int) -> Counter[object]:
    up = [True] * disks
    return Counter(places.choose(ledger, up, up) for ledger in range(ledgers))


def test_new_ledgers_go_by_free_bytes_and_not_by_number() -> None:
    places = all_listed("a", "b", "c")
    places.record(0, range(100_000, 100_300))
    places.set_free_space({"a": 600 << 30, "b": 300 << 30, "c": 100 << 30}, ())
    assert chosen(places, 100, 3) == {0: 60, 1: 30, 2: 10}


def test_as_long_as_nothing_is_known_all_disks_get_the_same() -> None:
    assert chosen(all_listed("a", "b", "c"), 30, 3) == {0: 10, 1: 10, 2: 10}


def test_a_closed_disk_gets_none_even_where_there_is_no_other() -> None:
    places = all_listed("a", "b")
    places.set_free_space({"a": 1 << 40, "b": 1 << 20}, ["a"])
    assert chosen(places, 10, 2) == {1: 10}
    assert places.choose(11, [True, False], UP) is Unroutable.NO_DISK
    places.record(0, [12])
    assert places.choose(12, UP, UP) == 0, "what it has it keeps"


def test_read_only_disks_get_new_ledgers_only_where_there_is_no_other() -> None:
    places = all_listed("a", "b")
    assert {places.choose(ledger, UP, [False, True]) for ledger in range(5)} == {1}
    assert places.choose(9, [True, False], [False, False]) == 0
    assert places.choose(10, [False, False], UP) is Unroutable.NO_DISK


def test_a_disk_that_joins_moves_nothing_and_holds_up_nothing() -> None:
    places = all_listed("a", "b")
    before = {ledger: places.choose(ledger, UP, UP) for ledger in range(20)}
    places.set_free_space({"a": 10, "b": 10, "c": 1000}, ())
    assert places.join("c") == 2
    up = [True] * 3
    assert {ledger: places.choose(ledger, up, up) for ledger in range(20)} == before
    assert places.choose(50, [True, True, False], up) in (0, 1), "it need not be in service"
    news = Counter(places.choose(ledger, up, up) for ledger in range(100, 151))
    assert news[2] > 45


def test_a_disk_that_leaves_keeps_its_number_for_good() -> None:
    places = all_listed("a", "b")
    places.leave("a")
    assert places.all_listed()
    assert chosen(places, 5, 2) == {1: 5}
    assert places.join("c") == 2


def test_a_disk_that_replaces_another_is_asked_first() -> None:
    places = all_listed("a", "b")
    places.record(0, [7])
    places.replace("a", "c")
    assert places.choose(7, UP, UP) == 0
    assert places.choose(8, UP, UP) is Unroutable.UNLISTED
    places.listed(0)
    assert places.choose(8, UP, UP) in (0, 1)


def test_a_held_ledger_is_on_no_disk_until_it_is_placed() -> None:
    places = all_listed("a", "b")
    places.record(0, [7])
    assert places.mark_migrating(7) == 0
    assert places.find(7) == MIGRATING
    places.record(1, [7])
    assert places.find(7) == 1


@given(
    st.lists(st.integers(0, 1 << 44), min_size=1, max_size=8),
    st.integers(1, 300),
)
def test_no_disk_is_ever_more_than_one_ledger_off_its_share(free: list[int], times: int) -> None:
    spread = DiskSelection()
    rooms = dict(enumerate(free))
    found = Counter(spread.choose(rooms) for _ in range(times))
    weights = rooms if any(free) else dict.fromkeys(rooms, 1)
    for disk, weight in weights.items():
        share = times * weight / sum(weights.values())
        assert abs(found[disk] - share) <= len(free)


def test_a_list_that_was_made_before_a_ledger_was_paused_ends_no_pause() -> None:
    places = LedgerDirectory(["a", "b"], Routes())
    places.record_list(0, (1, 2))
    assert places.mark_migrating(1) == 0
    places.record_list(0, (1, 2, 3))
    assert [places.find(ledger) for ledger in (1, 2, 3)] == [MIGRATING, 0, 0]
    places.record(1, (1,))
    assert places.find(1) == 1


def test_a_ledger_is_unlisted_once_all_lists_are_known() -> None:
    places = LedgerDirectory(["a", "b"], Routes())
    places.listed(0)
    assert not places.is_unlisted(7), "it may be on the other disk"
    places.listed(1)
    assert places.is_unlisted(7)
    assert not places.is_unlisted(-1)
    places.record(1, (7,))
    assert not places.is_unlisted(7)
