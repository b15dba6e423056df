"""Copying the entries of one ledger, over a pool of the test's own: what went wrong is never taken for copied."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bkbox.errors import BugError, JobCancelledError
from bkbox.ids import NO_ENTRY, BookieId, EntryId, LedgerId
from bkbox.repair.copier import Copier
from bkbox.wire.codes import Code
from bkbox.wire.digest import DigestManager
from bkbox.wire.ledger import DigestType, Fragment, LedgerMetadata, LedgerState
from tests.jobs.works import FreeWork

ME, PEER = BookieId("me:1"), BookieId("peer:1")
METADATA = LedgerMetadata(
    LedgerId(3),
    2,
    2,
    1,
    LedgerState.CLOSED,
    (Fragment(EntryId(0), (ME, PEER)),),
    last_entry=EntryId(9),
    length=1000,
    digest_type=DigestType.CRC32,
)


class Pool:
    """Peers have every entry; what was stored here is in ``stored``."""

    def __init__(self, on_store: Callable[[int], None] = lambda _entry: None) -> None:
        self.stored: list[int] = []
        self._on_store = on_store
        self._digests = DigestManager(LedgerId(3), DigestType.CRC32, b"")

    async def read(self, _peer: BookieId, _ledger: int, entry: EntryId, _key: object) -> Any:
        await asyncio.sleep(0)
        package = self._digests.package(entry, NO_ENTRY, 0, b"x" * 100)
        return SimpleNamespace(answer=Code.EOK, entry=memoryview(package))

    async def add(self, _me: BookieId, add: Any) -> Any:
        await asyncio.sleep(0)
        self._on_store(add.entry_id)
        self.stored.append(add.entry_id)
        return SimpleNamespace(answer=Code.EOK)


def copy(pool: Pool, work: FreeWork) -> dict[int, str]:
    copier = Copier(ME, cast(Any, pool), METADATA, work, entries_in_flight=3)
    return asyncio.run(copier.copy(range(10))).failed


def test_every_entry_is_paid_for_and_counted() -> None:
    work, pool = FreeWork(), Pool()
    assert copy(pool, work) == {}
    assert sorted(pool.stored) == list(range(10))
    assert work.done["entries"] == 10
    assert work.done["size"] == work.network_bytes == work.disk_bytes > 1000


def test_a_cancelled_copy_is_no_success() -> None:
    work, pool = FreeWork(cancel_at=4), Pool()
    with pytest.raises(JobCancelledError):
        copy(pool, work)
    assert len(pool.stored) <= 3


def test_a_fault_is_no_success_either() -> None:
    def fail(entry: int) -> None:
        if entry == 5:
            raise BugError("oh")

    with pytest.raises(BugError, match="oh"):
        copy(Pool(fail), FreeWork())
