"""The states of the ledgers of one disk: the last used ones in memory, and how many there are."""

from __future__ import annotations

from collections import OrderedDict

from bkbox.bookie.admission import Standing
from bkbox.storage.disk import DiskStore
from bkbox.storage.records import LedgerRecord

_CACHED_LEDGERS = 100_000


def standing(record: LedgerRecord | None) -> Standing:
    if record is None:
        return Standing.UNKNOWN
    if record.limbo:
        return Standing.LIMBO
    return Standing.FENCED if record.fenced else Standing.OPEN


class Ledgers:
    """States as they are written."""

    def __init__(self, store: DiskStore) -> None:
        self._store = store
        self._cache: OrderedDict[int, LedgerRecord] = OrderedDict()
        self.total = self.limbo = 0
        for _ledger, record in store.ledgers():
            self.total += 1
            self.limbo += record.limbo

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
        """A state has been written."""
        self.total += before is None
        self.limbo += after.limbo - (before is not None and before.limbo)
        self._remember(ledger, after)

    def _remember(self, ledger: int, record: LedgerRecord) -> None:
        self._cache[ledger] = record
        self._cache.move_to_end(ledger)
        if len(self._cache) > _CACHED_LEDGERS:
            self._cache.popitem(last=False)
