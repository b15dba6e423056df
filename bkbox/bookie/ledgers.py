"""The ledger states of one disk: a cache of the most recently used ones, and the number of ledgers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator

from bkbox.base.values import replaced
from bkbox.bookie.admission import LedgerStatus
from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.log.records import LedgerRecord

LedgersAfter = Callable[[int], Iterator[tuple[int, LedgerRecord]]]
"""Lists the ledgers with an id greater than the argument, ascending, with their states."""

_CACHED_LEDGERS = 100_000


def status_of(record: LedgerRecord | None) -> LedgerStatus:
    if record is None:
        return LedgerStatus.UNKNOWN
    if record.limbo:
        return LedgerStatus.LIMBO
    if record.emptied:
        return LedgerStatus.DELETED
    return LedgerStatus.FENCED if record.fenced else LedgerStatus.OPEN


def brought_back(record: LedgerRecord) -> LedgerRecord:
    """The state of a ledger taken out of the trash by a recovery add: entries that are gone are not denied."""
    incomplete = record.limbo or record.emptied
    return replaced(record, fenced=True, limbo=incomplete, deleted_ms=0, emptied=False)


class Ledgers:
    """Ledger states as written."""

    def __init__(self, store: DiskStore) -> None:
        self._store = store
        self._cache: OrderedDict[int, LedgerRecord] = OrderedDict()
        self.total = self.limbo = self.trash = self.emptied = 0
        self.active: list[int] = []
        """Ledgers that earlier incarnations left marked active."""
        for ledger, record in store.ledgers():
            self._count(record, 1)
            if record.active:
                self.active.append(ledger)

    def record(self, ledger: int) -> LedgerRecord | None:
        """The state of a ledger, None if the disk does not know it. DiskError."""
        cached = self._cache.get(ledger)
        if cached is not None:
            self._cache.move_to_end(ledger)
            return cached
        record = self._store.ledger_state(ledger)
        if record is not None:
            self._remember(ledger, record)
        return record

    def changed(self, ledger: int, before: LedgerRecord | None, after: LedgerRecord) -> None:
        """Record a state that was written."""
        if before is not None:
            self._count(before, -1)
        self._count(after, 1)
        self._remember(ledger, after)

    def forgotten(self, ledger: int, before: LedgerRecord | None) -> None:
        """Record that a ledger was removed from the disk."""
        if before is not None:
            self._count(before, -1)
        self._cache.pop(ledger, None)

    def _count(self, record: LedgerRecord, by: int) -> None:
        self.total += by
        self.limbo += by * record.limbo
        self.emptied += by * record.emptied
        self.trash += by * (record.deleted_ms > 0 and not record.emptied)

    def _remember(self, ledger: int, record: LedgerRecord) -> None:
        self._cache[ledger] = record
        self._cache.move_to_end(ledger)
        if len(self._cache) > _CACHED_LEDGERS:
            self._cache.popitem(last=False)
