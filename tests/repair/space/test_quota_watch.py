"""Who has how much: what disks and metadata say put together, with either of them away at times."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from bkbox.base.ids import BookieId, LedgerId
from bkbox.errors import (
    ConnectionLostError,
    MetadataError,
    MetadataUnavailableError,
    NoSuchLedgerError,
)
from bkbox.ipc import channel
from bkbox.ipc.messages.items import BYTES_ITEM, LEDGER_ID_ITEM
from bkbox.ipc.messages.message import Message, Page
from bkbox.ipc.messages.process import Settings
from bkbox.ipc.messages.repair import OVER_QUOTA_PAGE, OverQuota, QuotaUse, StartJob
from bkbox.ipc.messages.space import ListBytes
from bkbox.metadata.versioned import Versioned
from bkbox.repair.context import Environment
from bkbox.repair.idle_loop import wait_for_first_job
from bkbox.repair.space.quotas import QuotaWatch
from bkbox.wire.metadata.ledger import LedgerMetadata
from tests.harness.cluster import ledger_of
from tests.repair.orders import open_repair

ME = "127.0.0.1:3181"


@dataclass
class Store:
    """Of a metadata store what is asked here; ``fails_at``: the page of a list at which it goes away."""

    owners: dict[int, str | None] = field(default_factory=dict)
    reads: list[int] = field(default_factory=list)
    unreadable: set[int] = field(default_factory=set)
    fails_at: int = 1 << 30

    async def ledger_ranges(self) -> AsyncIterator[list[LedgerId]]:
        found = sorted(self.owners)
        for number, start in enumerate(range(0, len(found), 3)):
            if number >= self.fails_at:
                raise MetadataUnavailableError("away")
            yield [LedgerId(each) for each in found[start : start + 3]]

    async def read_ledger(self, ledger: int) -> Versioned[LedgerMetadata]:
        self.reads.append(ledger)
        if ledger in self.unreadable:
            raise MetadataError("not to be read")
        if ledger not in self.owners:
            raise NoSuchLedgerError(str(ledger))
        owner = self.owners[ledger]
        custom = () if owner is None else (("owner", owner.encode()),)
        return Versioned(replace(ledger_of(ledger, [ME]), custom=custom), 0)


@dataclass
class Disk:
    """A disk worker's part; ``counts``: how often it says that it is still counting."""

    sizes: dict[int, int] = field(default_factory=dict)
    counts: int = 0
    away: bool = False

    async def call(self, call: Message, timeout_s: float | None = None) -> Message:
        assert isinstance(call, ListBytes)
        assert timeout_s is not None
        if self.away:
            raise ConnectionLostError("away")
        if call.after < 0 and self.counts:
            self.counts -= 1
            return Page(more=True)
        left = sorted(each for each in self.sizes if each > call.after)
        payload = b"".join(BYTES_ITEM.pack(each, self.sizes[each]) for each in left[:2])
        return Page(more=len(left) > 2, payload=payload)


class Case:
    """A watch that looks when the test says so. ``over``: what the front-end would have; ``last``: the last word."""

    def __init__(
        self,
        quotas: Sequence[str],
        disks: dict[str, Disk],
        store: Store,
        calls_per_second: int = 0,
    ) -> None:
        self.store = store
        self.disks = disks
        self.over: list[int] | None = None
        self.pages = 0
        self._coming: list[int] = []
        self.last = QuotaUse()
        nothing: Any = None
        order: Any = SimpleNamespace(
            quotas=list(quotas), quota_interval_s=0.0, metadata_calls_per_second=calls_per_second
        )
        environment = Environment(
            me=BookieId(ME),
            store=self._any(store),
            client=nothing,
            disks=self._any(disks),
            order=order,
            rng=random.Random(1),
            wall_ms=lambda: 77,
            monotonic_s=time.monotonic,
        )
        self.watch = QuotaWatch(environment, self._take)

    @staticmethod
    def _any(item: object) -> Any:
        return item

    def _take(self, message: Message) -> None:
        if isinstance(message, OverQuota):
            self.pages += 1
            self._coming += [each for (each,) in LEDGER_ID_ITEM.iter_unpack(message.payload)]
            if not message.more:
                self.over, self._coming = self._coming, []
        else:
            assert isinstance(message, QuotaUse)
            self.last = message

    def look(self) -> list[list[Any]]:
        """What owners have, after a look that went well."""
        asyncio.run(self.watch._measure())
        assert (self.last.problem, self.last.checked_ms) == ("", 77)
        return self.last.owners


def settings(quotas: list[str], interval_s: float) -> dict[str, Any]:
    return {
        "quotas": quotas,
        "quota_interval_s": interval_s,
        "jobs_metadata_calls_per_second": 0,
    }


def test_the_metadata_store_is_asked_no_more_often_than_it_may_be() -> None:
    store = Store(dict.fromkeys(range(1, 51), "x"))
    disk = Disk(dict.fromkeys(store.owners, 10))
    began_s = time.monotonic()
    Case(["x=50"], {"a": disk}, store, calls_per_second=100).look()
    assert time.monotonic() - began_s >= 0.6  # 67 calls, and nobody waits for the last ones


def test_each_ledger_counts_for_its_owner() -> None:
    disks = {"a": Disk({1: 10, 2: 20, 3: 30, 8: 1}, counts=3), "b": Disk({5: 50, 6: 60, 7: 70})}
    store = Store({1: "x", 2: "y", 3: "x", 5: "x", 6: None, 7: "z", 9: "x"})
    case = Case(["x=90", "y=21", "(none)=60", "q=5"], disks, store)
    assert case.look() == [
        ["(none)", 60, 60, True],
        ["x", 90, 90, True],
        ["y", 20, 21, False],
        ["q", 0, 5, False],
    ]
    assert case.over == [6, 1, 3, 5], "neither 8, which has no metadata, nor 9, which is not here"
    assert sorted(store.reads) == [1, 2, 3, 5, 6, 7]
    store.reads.clear()
    case.look()
    assert store.reads == [], "an owner does not change"
    assert case.pages == 1, "nothing has changed"


def test_a_deleted_ledger_counts_no_more_and_its_owner_may_add_again() -> None:
    store = Store({1: "x", 2: "x"})
    case = Case(["x=25"], {"a": Disk({1: 10, 2: 20})}, store)
    assert case.look() == [["x", 30, 25, True]]
    del store.owners[2]
    assert case.look() == [["x", 10, 25, False]]
    assert case.over == []


def test_without_metadata_what_was_said_stands() -> None:
    store = Store(dict.fromkeys(range(1, 9), "x"))
    disk = Disk(dict.fromkeys(range(1, 9), 10))
    case = Case(["x=50"], {"a": disk}, store)
    store.fails_at = 1
    asyncio.run(case.watch._measure())
    assert (case.last.problem, case.last.checked_ms, case.over) == ("away", 0, None)
    store.fails_at = 1 << 30
    assert case.look() == [["x", 80, 50, True]]
    assert sorted(store.reads) == list(range(1, 9)), "what was read before is not read again"
    for store.fails_at in (0, 1):
        disk.sizes = {}
        asyncio.run(case.watch._measure())
        assert case.last.problem == "away"
        assert case.over == list(range(1, 9))
    store.fails_at = 1 << 30
    case.look()
    assert case.over == []


def test_metadata_that_cannot_be_read_or_have_just_gone_hold_up_nobody() -> None:
    store = Store({1: "x", 2: "x", 3: "x"}, unreadable={2})
    case = Case(["x=20"], {"a": Disk({1: 10, 2: 20, 3: 10})}, store)
    assert case.look() == [["x", 20, 20, True]]
    store.unreadable.clear()
    assert case.look() == [["x", 40, 20, True]]


def test_a_disk_that_does_not_answer_counts_as_before_but_for_what_has_moved() -> None:
    store = Store({1: "x", 2: "x", 3: "x"})
    one, other = Disk({1: 10, 2: 20}), Disk({3: 30})
    case = Case(["x=60"], {"a": one, "b": other}, store)
    assert case.look() == [["x", 60, 60, True]]
    one.away = True
    assert case.look() == [["x", 60, 60, True]]
    assert case.over == [1, 2, 3]
    other.sizes[2] = 19
    assert case.look() == [["x", 59, 60, False]], "ledger 2 is on the other disk now"
    del store.owners[1]
    assert case.look() == [["x", 49, 60, False]]


def test_many_ledgers_come_in_pages_and_few_owners_are_named() -> None:
    count = OVER_QUOTA_PAGE + 5
    store = Store({each: f"owner {each % 300}" for each in range(1, count + 1)})
    store.owners[count] = "long " * 100
    case = Case(["*=1"], {"a": Disk(dict.fromkeys(store.owners, 1))}, store)

    async def all_at_once() -> None:
        page = b"".join(BYTES_ITEM.pack(each, 1) for each in sorted(store.owners))

        async def call(_call: object, timeout_s: float) -> Page:
            return Page(payload=page)

        case.disks["a"].call = call  # type: ignore[method-assign, assignment]
        await case.watch._measure()

    asyncio.run(all_at_once())
    assert case.over is not None
    assert sorted(case.over) == sorted(store.owners)
    assert case.pages == 2
    assert (len(case.last.owners), case.last.unlisted_owners) == (100, 201)
    assert all(len(owner) <= 64 for owner, *_ in case.last.owners)


def test_a_changed_configuration_is_looked_at_at_once() -> None:
    store = Store({1: "x"})
    case = Case([], {"a": Disk({1: 10})}, store)

    async def story() -> None:
        running = asyncio.ensure_future(case.watch.run())
        await asyncio.sleep(0.01)
        assert case.over is None, "there are no quotas, and nobody looks"
        for quotas, over in ((["x=5"], [1]), (["x=50"], []), (["*=10"], [1])):
            case.over = None
            case.watch.configure(settings(quotas, 600.0))
            async with asyncio.timeout(10):
                while case.over is None:
                    await asyncio.sleep(0.001)
            assert case.over == over
        case.watch.configure(settings([], 0.0))
        case.last = QuotaUse()
        await asyncio.sleep(0.05)
        assert case.last == QuotaUse()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(story())


def test_the_repair_process_sleeps_until_there_is_a_job_or_a_quota() -> None:
    calm = [open_repair(), Settings(values=settings([], 1.0))]
    for last in (
        open_repair(quotas=["x=1"]),
        Settings(values=settings(["x=1"], 1.0)),
        StartJob(id=1, kind="gc", arguments={}),
    ):
        ours, theirs = channel.pair()
        with ours, theirs:
            for message in (*calm, last, *calm):
                channel.Channel(ours).send(message)
            found = [order for order, _fds in wait_for_first_job(channel.Channel(theirs))]
            assert found == [*calm, last]
