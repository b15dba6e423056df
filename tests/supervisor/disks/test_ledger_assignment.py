"""The disks of new ledgers, as several front-ends are told them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkbox.frontend.ledger_directory import MIGRATING
from bkbox.frontend.ledger_queries import Answer
from bkbox.ipc.messages.frontend import NewLedgers
from bkbox.ipc.messages.items import LEDGER_ITEM, PLACEMENT_ITEM
from bkbox.supervisor.disks.disks import Disk
from bkbox.supervisor.disks.ledger_assignment import LedgerAssignments


def disk(number: int, *, in_service: bool = True) -> Disk:
    made = Disk(number, Path(f"/{number}"), f"uuid {number}", lock=None)  # type: ignore[arg-type]
    made.in_service = in_service
    return made


@pytest.fixture
def disks() -> list[Disk]:
    return [disk(1), disk(2)]


@pytest.fixture
def table(disks: list[Disk]) -> LedgerAssignments:
    made = LedgerAssignments(disks)
    made.set_free_space(NewLedgers(allowed=True, free={"uuid 1": 100, "uuid 2": 100}))
    return made


def test_a_ledger_keeps_its_disk(table: LedgerAssignments, disks: list[Disk]) -> None:
    assert table.find(5) is None
    assert table.assign(5, creates=False) == Answer.NOWHERE.value
    assert table.find(5) is None, "a question makes nothing"
    chosen = {ledger: table.assign(ledger, creates=True) for ledger in range(100)}
    assert sorted(chosen.values()) == [0] * 50 + [1] * 50
    for each in disks:
        each.in_service = False
    assert {ledger: table.find(ledger) for ledger in range(100)} == chosen
    found = table.disk_of(7)
    assert found is disks[chosen[7]]


def test_disks_that_take_none(table: LedgerAssignments, disks: list[Disk]) -> None:
    disks[0].in_service = False
    assert {table.assign(ledger, creates=True) for ledger in range(9)} == {1}
    disks[0].in_service = True
    table.set_free_space(NewLedgers(allowed=True, free={}, closed=["uuid 2"]))
    assert {table.assign(ledger, creates=True) for ledger in range(10, 19)} == {0}
    disks[0].stats["read_only"] = ["disk full"]
    assert table.assign(20, creates=True) == 0, "the worker refuses: another disk is closed"
    disks[0].in_service = False
    assert table.assign(21, creates=True) == Answer.UNKNOWN.value


def test_while_a_disk_is_held_nothing_is_made_and_nothing_denied(
    table: LedgerAssignments, disks: list[Disk]
) -> None:
    before = table.assign(1, creates=True)
    table.hold(disks[1])
    assert table.assign(2, creates=True) == Answer.UNKNOWN.value
    assert table.assign(2, creates=False) == Answer.UNKNOWN.value
    assert table.find(1) == before
    table.release(disks[1])
    assert table.assign(2, creates=True) >= 0


def test_answers_and_news(table: LedgerAssignments) -> None:
    item, placed = LEDGER_ITEM, PLACEMENT_ITEM
    query = item.pack(1, 1) + item.pack(2, 0) + item.pack(3, 1)
    answers, assigned = (dict(placed.iter_unpack(each)) for each in table.resolve(query))
    assert answers[2] == Answer.NOWHERE.value
    assert {answers[1], answers[3]} == {0, 1}
    assert assigned == {ledger: answers[ledger] for ledger in (1, 3)}
    again = table.resolve(query)
    assert dict(placed.iter_unpack(again[0])) == answers
    assert again[1] == b"", "each is news once"
    table.pause(1)
    assert set(dict(placed.iter_unpack(table.resolve(query)[0]))) == {2, 3}


def test_migrations(table: LedgerAssignments, disks: list[Disk]) -> None:
    table.pause(1)
    assert table.find(1) == MIGRATING
    assert table.disk_of(1) is None
    table.place(1, disks[1])
    assert table.find(1) == 1
    assert table.disk_of(1) is disks[1]


def test_disks_come_and_go(table: LedgerAssignments, disks: list[Disk]) -> None:
    assert {table.assign(ledger, creates=True) for ledger in range(2)} == {0, 1}
    third = disk(3)
    disks.append(third)
    table.join(third)
    table.join(third)
    assert table.uuids == ["uuid 1", "uuid 2", "uuid 3"]
    table.set_free_space(NewLedgers(allowed=True, free={"uuid 3": 100}))
    assert table.assign(5, creates=True) == 2
    new = disk(4)
    old, disks[1] = disks[1], new
    table.join(new, replaces=old.uuid)
    assert table.uuids == ["uuid 1", "uuid 4", "uuid 3"]
    assert table.assign(6, creates=True) == Answer.UNKNOWN.value, "it has listed nothing yet"
    table.release(new)
    assert table.assign(6, creates=True) >= 0
    first = disks.pop(0)
    table.leave(first)
    assert table.uuids == ["", "uuid 4", "uuid 3"]
    assert 0 not in {table.assign(ledger, creates=True) for ledger in range(10, 30)}
