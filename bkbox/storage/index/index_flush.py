"""The flush of a frozen index layer into the stored index.

An extent beyond the last stored entry of its ledger, as nearly all are, is one put and needs no read. If its span
meets that of stored extents, they are merged. Entries inside a stored span are added to that extent, which may become
several; those between two spans become extents of their own. The newer entry wins.

The flush may run on another thread while the disk's thread goes on reading and appending. It touches only the store
and the frozen layer, which no thread changes. It writes in slices, so that the disk's thread never waits long. A
flush repeated after it failed half-way has the same result. Between two changes it calls ``pause``, which may wait.
"""

from __future__ import annotations

from collections.abc import Callable

from bkbox.base.values import field, struct
from bkbox.storage.index.extents import Extent
from bkbox.storage.index.memtable import Memtable
from bkbox.storage.index.stored_index import (
    Changes,
    Stamp,
    StoredIndex,
    encode_runs,
    put_lac,
    put_stamp,
    put_state,
    run_key,
)
from bkbox.storage.log.records import LedgerRecord

_SLICE_KEYS = 128
_STATE_BYTES = 400
"""Memory of a state or an explicit LAC, bytes."""


@struct
class Layer:
    """The changes since some moment: entries, ledger states, explicit LACs. ``entries`` also has the ledgers that
    were forgotten since; older data about those does not count.
    """

    entries: Memtable
    states: dict[int, LedgerRecord] = field(default_factory=dict)
    lacs: dict[int, bytes] = field(default_factory=dict)

    @property
    def memory(self) -> int:
        """Estimated memory, bytes."""
        return self.entries.memory + _STATE_BYTES * (len(self.states) + len(self.lacs))

    def forget(self, ledger: int) -> None:
        """Void everything so far about a ledger."""
        self.entries.forget(ledger)
        self.states.pop(ledger, None)
        self.lacs.pop(ledger, None)

    def clear(self) -> None:
        self.entries.clear()
        self.states = {}
        self.lacs = {}


class IndexFlush:
    """Writes one layer; see above."""

    def __init__(
        self,
        stored: StoredIndex,
        layer: Layer,
        known_last: Callable[[int], int | None],
        pause: Callable[[], None],
    ) -> None:
        """``known_last``: the last stored entry of a ledger, if it is known without a read. ``pause``: see above."""
        self._stored = stored
        self._layer = layer
        self._known_last = known_last
        self._pause = pause
        self._changes: Changes = {}
        self.lasts: dict[int, int] = {}
        """The last stored entry of the ledgers that the flush touched."""
        self.merged: set[int] = set()
        """The ledgers whose stored extents were changed."""

    def run(self, stamp: Stamp | None) -> None:
        """Write the layer, with the stamp of its checkpoint, and make it durable. DiskError."""
        for ledger in self._layer.entries.forgotten():
            self._stored.forget(self._changes, ledger)
            self.lasts[ledger] = -1
            self.merged.add(ledger)
            self._write_slice()
        self._write()
        for ledger, state in self._layer.states.items():
            put_state(self._changes, ledger, state)
            self._write_slice()
        for ledger, packet in self._layer.lacs.items():
            put_lac(self._changes, ledger, packet)
            self._write_slice()
        for run in self._layer.entries.runs():
            self._put(run)
            self._write_slice()
        if stamp is not None:
            put_stamp(self._changes, stamp)
        self._write()
        self._stored.flush()

    def _put(self, run: Extent) -> None:
        last = self.lasts.get(run.ledger)
        if last is None:
            last = self._known_last(run.ledger)
            if last is None:
                last = self._stored.last(run.ledger)
        if run.first > last:
            self._changes[run_key(run)] = run.value
        else:
            self._merge(run)
            self.merged.add(run.ledger)
        self.lasts[run.ledger] = max(last, run.last)

    def _merge(self, run: Extent) -> None:
        """Merge an extent into the stored ones."""
        self._write()  # the extent before this one may have been merged with the same stored one
        ledger, segment = run.ledger, run.segment
        entries = run.entries()
        at = 0
        while at < len(entries):
            places: dict[int, tuple[int, int, int]] = {}
            under = self._stored.run_with(ledger, entries[at][0])
            if under is not None:
                end: int | None = under.last + 1
                self._changes[run_key(under)] = None
                for entry, offset, length in under.entries():
                    places[entry] = under.segment, offset, length
            else:
                end = self._stored.first_after(ledger, entries[at][0])
            while at < len(entries) and (end is None or entries[at][0] < end):
                entry, offset, length = entries[at]
                places[entry] = segment, offset, length
                at += 1
            for part in encode_runs(ledger, ((n, *places[n]) for n in sorted(places))):
                self._changes[run_key(part)] = part.value

    def _write_slice(self) -> None:
        """Write the changes if they are a slice; then pause."""
        if len(self._changes) >= _SLICE_KEYS:
            self._write()
        self._pause()

    def _write(self) -> None:
        changes, self._changes = self._changes, {}
        self._stored.write(changes)
