"""The known LAC of a ledger: the highest of the LAC field of its last entry, the LAC fields of the entries that came
since, and the explicit LAC. The bookie only ever raises it.

It is cached for ledgers that a client asked about, and read from the disk on the first request, so that no client waits
for a LAC that is already there. The LAC in an entry's header is what the writer had confirmed when it made the entry.
The bookie does not check the digest that vouches for it; the client that relies on it does. Source: protocol of
READ_ENTRY in version 3 (maxLAC, previousLAC), FileInfo.java, TransientLedgerInfo.java.
"""

from __future__ import annotations

from collections import OrderedDict
from struct import Struct

from bkbox.base.limits import KNOWN_LACS_MAX
from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.log.records import Buffer, lac_of

_LAC_FIELD = Struct(">16xq")


def lac_field(entry: Buffer) -> int:
    """The LAC in the header of an entry of at least 24 bytes."""
    lac: int = _LAC_FIELD.unpack_from(entry)[0]
    return lac


class KnownLacs:
    """The known LACs of the ledgers of one disk."""

    def __init__(self, store: DiskStore) -> None:
        self._store = store
        self._known: OrderedDict[int, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, ledger: int) -> bool:
        return ledger in self._known

    def known(self, ledger: int) -> int | None:
        """The known LAC, None if the ledger has neither an entry nor an explicit LAC. DamagedError, DiskError."""
        lac = self._known.get(ledger)
        if lac is not None:
            self._known.move_to_end(ledger)
            return lac
        lac = self._stored(ledger)
        if lac is not None:
            self._known[ledger] = lac
            if len(self._known) > KNOWN_LACS_MAX:
                self._known.popitem(last=False)
        return lac

    def _stored(self, ledger: int) -> int | None:
        packet = self._store.explicit_lac(ledger)
        last = self._store.last_entry_id(ledger)
        entry = self._store.read_entry(ledger, last) if last >= 0 else None
        found = [] if packet is None else [lac_of(packet)]
        if entry is not None:
            found.append(lac_field(entry))
        return max(found, default=None)

    def forget(self, ledger: int) -> None:
        """Drop a ledger that was removed from this disk."""
        self._known.pop(ledger, None)

    def seen(self, ledger: int, lac: int) -> None:
        """Record that an entry or explicit LAC with this LAC was written."""
        before = self._known.get(ledger)
        if before is not None and lac > before:
            self._known[ledger] = lac
