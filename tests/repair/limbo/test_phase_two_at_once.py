"""How phase two goes about its ledgers: so many at once, each again after a pause, none held up by another."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any, cast

from bkbox.base.ids import BookieId, EntryId, LedgerId
from bkbox.client.client import Client
from bkbox.errors import RecoveryAbortedError
from bkbox.ipc.async_channel import AsyncChannel
from bkbox.ipc.messages.disk import ClearLimbo, ListLedgers
from bkbox.ipc.messages.items import LEDGER_ITEM, LIMBO
from bkbox.ipc.messages.message import Done, Message, Page
from bkbox.ipc.messages.migration import GetLedger, LedgerInfo
from bkbox.metadata.base import MetadataStore
from bkbox.metadata.versioned import Versioned
from bkbox.repair.context import Environment
from bkbox.repair.limbo.limbo_repair import LimboRepair
from bkbox.wire.metadata.ledger import Fragment, LedgerMetadata, LedgerState
from tests.jobs.works import FreeWork
from tests.repair.orders import open_repair

ME = BookieId("me:1")


def metadata(ledger: int, state: LedgerState) -> LedgerMetadata:
    fragment = Fragment(EntryId(0), (ME, BookieId("a:1"), BookieId("b:1")))
    return LedgerMetadata(LedgerId(ledger), 3, 3, 2, state, (fragment,))


class Disk:
    """The channel to a worker with so many empty ledgers in limbo."""

    def __init__(self, ledgers: int) -> None:
        self.limbo = set(range(1, ledgers + 1))
        self.closed = False

    async def call(self, message: Message) -> Message:
        if isinstance(message, ListLedgers):
            items = (LEDGER_ITEM.pack(each, LIMBO) for each in sorted(self.limbo))
            return Page(payload=b"".join(items))
        if isinstance(message, ClearLimbo):
            self.limbo.discard(message.ledger)
            return Done()
        if isinstance(message, GetLedger):
            is_limbo = message.ledger in self.limbo
            return LedgerInfo(known=True, limbo=is_limbo)
        return Page()


class Store:
    async def read_ledger(
        self, ledger: LedgerId, *, linearizable: bool
    ) -> Versioned[LedgerMetadata]:
        assert linearizable, "what others were told before counts"
        return Versioned(metadata(ledger, LedgerState.OPEN), 0)


class Recoveries:
    """A client; recoveries of these ledgers fail so many times."""

    def __init__(self, failures: dict[int, int]) -> None:
        self.failures = failures
        self.tries: list[int] = []
        self.active = self.most = 0

    async def recover(self, ledger: LedgerId) -> LedgerMetadata:
        self.tries.append(ledger)
        self.active += 1
        self.most = max(self.most, self.active)
        await asyncio.sleep(0.002)
        self.active -= 1
        if self.failures.get(ledger, 0) > 0:
            self.failures[ledger] -= 1
            raise RecoveryAbortedError("two of three are in limbo")
        return metadata(ledger, LedgerState.CLOSED)

    async def inspect_ledger(self, ledger: LedgerId) -> Any:
        raise RecoveryAbortedError("nobody answers")


def run(ledgers: int, at_once: int, failures: dict[int, int]) -> tuple[Recoveries, FreeWork, Disk]:
    order = open_repair(ledgers_at_once=at_once, retry_initial_s=0.001, retry_max_s=0.002)
    client, work, disk = Recoveries(failures), FreeWork(), Disk(ledgers)

    async def go() -> None:
        environment = Environment(
            me=ME,
            store=cast(MetadataStore, Store()),
            client=cast(Client, client),
            disks={},
            order=order,
            rng=random.Random(1),
            wall_ms=lambda: 0,
            monotonic_s=time.monotonic,
        )
        runner = LimboRepair(environment, work)
        await runner.serve_disk(cast(AsyncChannel, disk))
        while not await runner.wait(1.0):
            pass

    asyncio.run(asyncio.wait_for(go(), 60))
    return client, work, disk


def test_so_many_ledgers_are_worked_on_at_once() -> None:
    for at_once in (1, 3):
        client, work, disk = run(20, at_once, {})
        assert client.most == at_once
        assert sorted(client.tries) == [*range(1, 21)]
        assert (work.done["ledgers"], disk.limbo) == (20, set())


def test_what_is_stuck_is_tried_again_and_holds_up_nothing_else() -> None:
    client, work, disk = run(10, 1, {1: 3, 2: 1})
    assert client.tries.index(10) < len(client.tries) - 1, "the others came before the last try"
    assert (client.tries.count(1), client.tries.count(2), client.tries.count(3)) == (4, 2, 1)
    assert (work.blockers, disk.limbo) == ({}, set())
