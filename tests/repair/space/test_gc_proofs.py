"""When a ledger may be deleted: what the collection asks of the metadata, and what it does not do when that is odd."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from bkbox.base.ids import BookieId, LedgerId
from bkbox.base.values import replaced
from bkbox.bookie.ledgers import brought_back
from bkbox.errors import MetadataError, MetadataUnavailableError, NoSuchLedgerError
from bkbox.ipc.messages.disk import ListLedgers
from bkbox.ipc.messages.items import DELETED_ITEM, LEDGER_ID_ITEM, LEDGER_ITEM, LIMBO
from bkbox.ipc.messages.message import Message, Page
from bkbox.ipc.messages.space import Changed, ChangeLedgers, GetSpace, ListDeleted, Space
from bkbox.metadata.versioned import Versioned
from bkbox.repair.context import Environment
from bkbox.repair.space.gc import collect
from bkbox.storage.log.records import LedgerRecord
from bkbox.wire.metadata.ledger import LedgerMetadata, LedgerState
from tests.harness.cluster import ledger_of
from tests.jobs.works import FreeWork

ME = "127.0.0.1:3181"
OTHER = "127.0.0.1:3182"
INSTANCE = "one"
DAY_MS = 86_400_000


@dataclass
class Store:
    """Of a metadata store what a collection asks; ``unlisted``: ledgers that the list of all has forgotten."""

    ledgers: dict[int, LedgerMetadata] = field(default_factory=dict)
    unlisted: set[int] = field(default_factory=set)
    marked: set[int] = field(default_factory=set)
    instance: str = INSTANCE
    fails: bool = False
    lists: int = 0
    on_list: Callable[[int], None] = lambda _number: None

    async def instance_id(self) -> str:
        return self.instance

    async def ledger_ranges(self) -> AsyncIterator[list[LedgerId]]:
        self.lists += 1
        self.on_list(self.lists)
        found = sorted(set(self.ledgers) - self.unlisted)
        for start in range(0, len(found), 2):
            yield [LedgerId(each) for each in found[start : start + 2]]
            if self.fails:
                raise MetadataUnavailableError("away")

    async def read_ledger(self, ledger: int, *, linearizable: bool) -> Versioned[LedgerMetadata]:
        assert linearizable
        if ledger not in self.ledgers:
            raise NoSuchLedgerError(str(ledger))
        return Versioned(self.ledgers[ledger], 0)

    async def underreplicated(self) -> frozenset[int]:
        return frozenset(self.marked)


@dataclass
class Worker:
    """A disk worker's part, over a dict."""

    states: dict[int, LedgerRecord] = field(default_factory=dict)
    done: list[tuple[str, list[int]]] = field(default_factory=list)
    closed: bool = False

    async def call(self, call: Message) -> Message:
        match call:
            case GetSpace():
                return Space(values={"instance_id": INSTANCE})
            case ListLedgers():
                some = sorted(each for each in self.states if each > call.after)[:2]
                items = [(each, LIMBO * self.states[each].limbo) for each in some]
                more = bool(some) and some[-1] != max(self.states)
                payload = b"".join(LEDGER_ITEM.pack(*item) for item in items)
                return Page(more=more, payload=payload)
            case ListDeleted():
                deleted = [
                    (each, state.emptied, state.deleted_ms)
                    for each, state in sorted(self.states.items())
                    if state.deleted_ms
                ]
                return Page(payload=b"".join(DELETED_ITEM.pack(*item) for item in deleted))
            case ChangeLedgers():
                return self._change(call)
        raise AssertionError(call)

    def _change(self, call: ChangeLedgers) -> Changed:
        ledgers = [each for (each,) in LEDGER_ID_ITEM.iter_unpack(call.payload)]
        self.done.append((call.action, ledgers))
        for ledger in ledgers:
            state = self.states[ledger]
            if call.action == "trash":
                self.states[ledger] = replaced(state, fenced=True, deleted_ms=call.now_ms)
            elif call.action == "empty":
                self.states[ledger] = replaced(state, emptied=True)
            elif call.action == "restore":
                self.states[ledger] = brought_back(state)
            else:
                del self.states[ledger]
        return Changed(ledgers=len(ledgers))


class Case:
    def __init__(self, here: Iterable[int], there: Iterable[LedgerMetadata] = ()) -> None:
        self.store = Store({int(each.ledger_id): each for each in there})
        self.worker = Worker({each: LedgerRecord(b"k" * 20) for each in here})
        self.now_ms = 100 * DAY_MS
        self.order = SimpleNamespace(
            gc_interval_s=900.0,
            gc_confirm_s=0.0,
            gc_trash_s=86_400.0,
            gc_remember_s=30 * 86_400.0,
            gc_overreplicated_s=0.0,
        )

    def run(self, **arguments: str) -> list[tuple[str, list[int]]]:
        """What was done on the disk."""
        disks: Any = {"disk": self.worker}
        store: Any = self.store
        order: Any = self.order
        client: Any = None
        environment = Environment(
            me=BookieId(ME),
            store=store,
            client=client,
            disks=disks,
            order=order,
            rng=random.Random(1),
            wall_ms=lambda: self.now_ms,
            monotonic_s=lambda: 0.0,
        )
        self.worker.done = []
        asyncio.run(collect(FreeWork(), environment, arguments))
        return self.worker.done


def mine(ledger: int, state: LedgerState = LedgerState.OPEN) -> LedgerMetadata:
    return ledger_of(ledger, [ME], state=state, last_entry=3)


def others(ledger: int, state: LedgerState = LedgerState.CLOSED) -> LedgerMetadata:
    return ledger_of(ledger, [OTHER], state=state, last_entry=3)


def test_from_deletion_to_oblivion() -> None:
    case = Case([1, 2, 3, 4, 5], [mine(1), mine(3), mine(5), others(9)])
    assert case.run() == [("trash", [2, 4])]
    assert case.run() == []
    case.now_ms += DAY_MS
    assert case.run() == [("empty", [2, 4])]
    assert case.run() == []
    case.now_ms += 30 * DAY_MS
    assert case.run() == [("forget", [2, 4])]
    assert sorted(case.worker.states) == [1, 3, 5]


def test_a_dry_run_changes_nothing() -> None:
    assert Case([1, 2], [mine(1)]).run(dry_run="true") == []


def test_the_trash_can_be_emptied_at_once() -> None:
    assert Case([1, 2], [mine(1)]).run(empty_trash="true") == [("trash", [2]), ("empty", [2])]


def test_what_is_only_not_listed_stays() -> None:
    case = Case([1, 2], [mine(1), mine(2)])
    case.store.unlisted = {2}
    assert case.run() == []


def test_a_list_that_breaks_off_deletes_nothing() -> None:
    case = Case([1, 2, 3, 4, 5, 6], [mine(each) for each in (1, 2, 3, 5, 6)])
    case.store.fails = True
    with pytest.raises(MetadataUnavailableError):
        case.run()
    assert case.worker.done == []


def test_an_empty_list_with_ledgers_that_exist_deletes_nothing() -> None:
    case = Case([1, 2], [mine(1)])
    case.store.unlisted = {1}
    with pytest.raises(MetadataError, match="its list is wrong"):
        case.run()
    assert case.worker.done == []


def test_an_empty_list_with_which_each_read_agrees_counts() -> None:
    assert Case([1, 2]).run() == [("trash", [1, 2])]


def test_the_metadata_of_another_cluster_deletes_nothing() -> None:
    case = Case([1, 2])
    case.store.instance = "another"
    with pytest.raises(MetadataError, match="belongs to the cluster"):
        case.run()
    assert case.worker.done == []


def test_what_is_gone_in_one_look_only_stays() -> None:
    case = Case([1, 2], [mine(1)])

    def comes_back(number: int) -> None:
        if number == 2:
            case.store.ledgers[2] = mine(2)

    case.store.on_list = comes_back
    assert case.run() == []


def test_what_is_not_for_this_bookie_any_more_goes() -> None:
    there = [mine(1), others(2), others(3), others(4), others(5, LedgerState.OPEN), others(6)]
    case = Case([1, 2, 3, 4, 5, 6], there)
    case.store.marked = {3}
    case.worker.states[4] = LedgerRecord(None, fenced=True, limbo=True)
    assert case.run() == []  # not its turn, where that is never
    assert case.run(all="true") == [("trash", [2, 4, 6])]  # limbo ends with it
    case.now_ms += DAY_MS
    case.store.ledgers[6] = mine(6, LedgerState.CLOSED)  # it was copied here again
    assert case.run() == [("restore", [6]), ("empty", [2, 4])]
    assert case.worker.states[6] == LedgerRecord(b"k" * 20, fenced=True)
    case.store.ledgers[2] = mine(2, LedgerState.CLOSED)
    assert case.run() == [("restore", [2])]
    assert case.worker.states[2].limbo


def test_each_ledger_has_its_turn_within_the_time() -> None:
    case = Case(range(1, 40), [others(each) for each in range(1, 40)])
    case.order.gc_overreplicated_s = 9_000.0
    gone: set[int] = set()
    for _run in range(10):
        found = [
            ledger for action, ledgers in case.run() for ledger in ledgers if action == "trash"
        ]
        assert len(found) <= 5
        gone |= set(found)
        case.now_ms += 900_000
    assert gone == set(range(1, 40))


def test_a_ledger_in_limbo_goes_when_it_is_deleted() -> None:
    case = Case([1, 2], [mine(1)])
    case.worker.states[2] = LedgerRecord(None, fenced=True, limbo=True)
    assert case.run() == [("trash", [2])]
