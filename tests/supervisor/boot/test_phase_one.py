"""Phase one against a store whose ledgers vanish or cannot be read, and disks that refuse: all, or nothing counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from bkbox.base.ids import BookieId, EntryId, LedgerId
from bkbox.errors import DiskFailedError, MetadataUnavailableError, NoSuchLedgerError
from bkbox.ipc.messages.disk import ListLedgers, MarkLedgers
from bkbox.ipc.messages.items import FENCED, LEDGER_ITEM, LIMBO, MARK_ITEM
from bkbox.ipc.messages.message import Done, Message, Page
from bkbox.metadata.base import MetadataStore
from bkbox.metadata.versioned import Versioned
from bkbox.storage.disk.lock import DiskLock
from bkbox.supervisor.boot import phase_one
from bkbox.supervisor.disks.disks import Disk
from bkbox.wire.metadata.ledger import Fragment, LedgerMetadata, LedgerState

ME, PEER = BookieId("me:1"), BookieId("peer:1")
LEDGERS = 3_000
"""More than one page of a list and one message of marks."""


@dataclass
class Store:
    """Ledgers 0 .. LEDGERS - 1, in pages of 700; those of ``gone`` were deleted after they were listed."""

    gone: set[int] = field(default_factory=set)
    away: int = -1
    """This one cannot be read."""
    under_way: int = 0
    most_under_way: int = 0

    async def underreplicated(self) -> frozenset[LedgerId]:
        return frozenset()

    async def ledger_ranges(self) -> AsyncIterator[list[LedgerId]]:
        for first in range(0, LEDGERS, 700):
            yield [LedgerId(ledger) for ledger in range(first, min(LEDGERS, first + 700))]

    async def read_ledger(
        self, ledger: LedgerId, *, linearizable: bool = False
    ) -> Versioned[LedgerMetadata]:
        self.under_way += 1
        self.most_under_way = max(self.under_way, self.most_under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        if ledger in self.gone:
            raise NoSuchLedgerError(f"ledger {ledger}")
        if ledger == self.away:
            raise MetadataUnavailableError("not now")
        fragments = (Fragment(EntryId(0), (ME, PEER)),)
        state = LedgerState.OPEN
        return Versioned(LedgerMetadata(ledger, 2, 2, 1, state, fragments, password=b""), 0)


@dataclass(slots=True)
class Suspect(Disk):
    """A disk that may have lost something; ``marked``: the ledgers that it was told to mark, in order."""

    has: tuple[int, ...] = ()
    fails: bool = False
    marked: list[int] = field(default_factory=list)

    async def call(
        self, message: Message, timeout_s: float | None = None, fds: Sequence[int] = ()
    ) -> Message:
        if isinstance(message, ListLedgers):
            page = [ledger for ledger in self.has if ledger > message.after][:500]
            payload = b"".join(LEDGER_ITEM.pack(ledger, 0) for ledger in page)
            return Page(more=bool(page) and page[-1] < self.has[-1], payload=payload)
        assert isinstance(message, MarkLedgers)
        if self.fails:
            raise DiskFailedError("no more writes")
        for ledger, flags, _has_key, _key in MARK_ITEM.iter_unpack(message.payload):
            assert flags == FENCED | LIMBO
            self.marked.append(ledger)
        return Done()


@pytest.fixture
def disks(tmp_path: Path) -> list[Suspect]:
    """The first suspects a loss; both record some ledgers."""
    made = []
    for number, has in enumerate((tuple(range(0, LEDGERS, 2)), (1, 5))):
        path = tmp_path / f"disk{number}"
        path.mkdir()
        made.append(Suspect(number, path, str(number), DiskLock(path), has=has))
    made[0].may_have_lost = True
    return made


def run(store: Store, disks: Sequence[Disk]) -> phase_one.PhaseOne:
    return asyncio.run(phase_one.run(cast(MetadataStore, store), ME, disks))


def test_every_ledger_is_marked_once_but_those_of_a_healthy_disk(disks: list[Suspect]) -> None:
    store = Store()
    done = run(store, disks)
    assert (done.ledgers_seen, done.limbo) == (LEDGERS, LEDGERS - 2)
    assert 1 < store.most_under_way <= phase_one._READS_AT_ONCE
    assert disks[0].marked == [ledger for ledger in range(LEDGERS) if ledger not in (1, 5)]
    assert disks[1].marked == []


@pytest.mark.parametrize("gone", [{7}, set(range(0, LEDGERS, 2)), set(range(LEDGERS))])
def test_ledgers_that_vanish_between_the_list_and_their_metadata_are_passed_over(
    disks: list[Suspect], gone: set[int]
) -> None:
    done = run(Store(gone), disks)
    assert done.ledgers_seen == LEDGERS - len(gone)
    assert disks[0].marked == [n for n in range(LEDGERS) if n not in gone and n not in (1, 5)]


def test_one_ledger_that_cannot_be_read_fails_all_of_it(disks: list[Suspect]) -> None:
    with pytest.raises(MetadataUnavailableError):
        run(Store(away=LEDGERS - 1), disks)


def test_one_mark_that_cannot_be_made_fails_all_of_it(disks: list[Suspect]) -> None:
    disks[0].fails = True
    with pytest.raises(DiskFailedError):
        run(Store(), disks)
