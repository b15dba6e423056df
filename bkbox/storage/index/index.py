"""The index of a disk: the location of each entry, and the state of each ledger. Derived from the entry log, see
rebuild.py.

It has three layers. The active layer, in memory, has what was appended since the last checkpoint. A checkpoint
freezes it (``freeze``) under a new active layer, writes it to the store (``write_frozen``, on any thread) and drops
it (``drop_frozen``). Look-ups go from the newest layer to the oldest, and stop at the layer in which the ledger was
forgotten. The log is synced before ``write_frozen``, so the store names only records that are durable in the log.
After a crash a replay of the log restores the layers in memory.

All methods but ``write_frozen`` belong to one thread. ``write_frozen`` changes a ledger's extents in the store while
they are being read. The caches (last entries, extents) therefore change only in ``drop_frozen``; until then the
frozen layer answers for everything that changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bkbox.base.limits import INDEX_MEMORY_BYTES, LAST_ENTRIES_CACHED_MAX, RUN_CACHE_BYTES
from bkbox.base.values import replaced
from bkbox.errors import BugError, IndexDamagedError
from bkbox.storage.index.extents import Extent, ExtentEncoder
from bkbox.storage.index.index_flush import IndexFlush, Layer
from bkbox.storage.index.memtable import NOT_HERE, EntryLocation, EntryLookup, Memtable
from bkbox.storage.index.ordered_store import OrderedStore
from bkbox.storage.index.stored_index import Changes, Stamp, StoredIndex
from bkbox.storage.log.records import (
    Kind,
    LedgerRecord,
    Location,
    Record,
    decode_ledger,
    decode_ledger_id,
    lac_of,
)


class LedgerIndex:
    """The index over an ordered store."""

    def __init__(self, store: OrderedStore) -> None:
        """Raises IndexDamagedError, with the store closed, if the index must be rebuilt."""
        try:
            self._stored = StoredIndex(store)
        except IndexDamagedError:
            store.close()
            raise
        self.finder = EntryLookup(self._load, RUN_CACHE_BYTES)
        """The look-up; its ``active`` takes entries, and is replaced at each ``freeze``."""
        self._active = Layer(self.finder.active)
        self._frozen: Layer | None = None
        self._reusable: Layer | None = None
        self._flush: IndexFlush | None = None
        self._last: dict[int, int] = {}
        """The last stored entry, by ledger."""
        self._place = EntryLocation()

    # ---- changes ---------------------------------------------------------------

    def apply(self, record: Record) -> None:
        """Record a ledger state, an explicit LAC or a FORGET; other kinds are ignored. DiskError."""
        kind, body = record
        if kind is Kind.LEDGER:
            ledger, state = decode_ledger(body)
            if state.emptied:
                self._active.forget(ledger)
            complete = state.fenced and state.master_key is not None  # nothing can be added to it
            old = None if complete else self.ledger_state(ledger)
            if old is not None:
                key = old.master_key if state.master_key is None else state.master_key
                state = replaced(state, master_key=key, fenced=state.fenced or old.fenced)
            self._active.states[ledger] = state
        elif kind is Kind.LAC:
            ledger = decode_ledger_id(body)
            packet = self.explicit_lac(ledger)
            if packet is None or lac_of(body) >= lac_of(packet):
                self._active.lacs[ledger] = bytes(body)
        elif kind is Kind.FORGET:
            self._active.forget(decode_ledger_id(body))

    # ---- entries ---------------------------------------------------------------

    def find(self, ledger: int, entry: int) -> Location | None:
        """The location of an entry, None if the index has no such entry. DamagedError, DiskError."""
        place = self._place
        if not self.finder.find(ledger, entry, place):
            return None
        return Location(place.segment, place.offset, place.length)

    def last_entry_id(self, ledger: int) -> int:
        """The highest entry id of a ledger, -1 if it has no entries."""
        last = -1
        for layer in self._layers():
            last = max(last, layer.entries.last(ledger))
            if layer.entries.forgets(ledger):
                return last
        return max(last, self._stored_last(ledger))

    def entries(self, ledger: int) -> list[tuple[int, int]]:
        """Ranges (first, last), both included, of the entries of a ledger, ascending and merged."""
        found: list[tuple[int, int]] = []
        for run in self.runs(ledger):
            found += run.ranges()
        found.sort()
        ranges: list[tuple[int, int]] = []
        for first, last in found:
            if ranges and first <= ranges[-1][1] + 1:
                ranges[-1] = ranges[-1][0], max(ranges[-1][1], last)
            else:
                ranges.append((first, last))
        return ranges

    def runs(self, ledger: int) -> Iterator[Extent]:
        """Extents with all entries of a ledger, as of the first step; they overlap. Concurrent appends, checkpoints
        and copies remove none of them.
        """
        encoder = ExtentEncoder()
        for layer in self._layers():
            yield from list(layer.entries.runs_of(ledger, encoder))  # puts go on between two steps
            if layer.entries.forgets(ledger):
                return
        yield from self._stored.runs(ledger)

    def stored_runs(self, ledger: int, first: int) -> Iterator[Extent]:
        """The extents of the store, starting after the extent of a ledger that begins with entry ``first``; (-1, -1):
        all. Newer layers may supersede them.
        """
        return self._stored.runs_after(ledger, first)

    def _layers(self) -> tuple[Layer, ...]:
        """The layers in memory, the newest first."""
        return (self._active,) if self._frozen is None else (self._active, self._frozen)

    def _load(self, ledger: int, entry: int) -> Extent | None:
        if entry > self._stored_last(ledger):
            return None
        return self._stored.run_with(ledger, entry)

    def _stored_last(self, ledger: int) -> int:
        last = self._last.get(ledger)
        if last is None:
            last = self._stored.last(ledger)
            self._remember({ledger: last})
        return last

    def _remember(self, lasts: dict[int, int]) -> None:
        if len(self._last) + len(lasts) > LAST_ENTRIES_CACHED_MAX:
            self._last.clear()
        self._last.update(lasts)

    # ---- ledgers ---------------------------------------------------------------

    def ledger_state(self, ledger: int) -> LedgerRecord | None:
        """State of a ledger, None if the disk does not know it."""
        for layer in self._layers():
            state = layer.states.get(ledger)
            if state is not None or layer.entries.forgets(ledger):
                return state
        return self._stored.state(ledger)

    def explicit_lac(self, ledger: int) -> bytes | None:
        """The explicit LAC packet of a ledger, None if it has none."""
        for layer in self._layers():
            packet = layer.lacs.get(ledger)
            if packet is not None or layer.entries.forgets(ledger):
                return packet
        return self._stored.lac(ledger)

    def ledgers(self, after: int = -1) -> Iterator[tuple[int, LedgerRecord]]:
        """All ledgers with an id > ``after`` that have a state, ascending, as of the first step."""
        stored = self._stored.states(after)
        newer: dict[int, LedgerRecord | None] = {}
        for layer in reversed(self._layers()):
            newer.update(dict.fromkeys(layer.entries.forgotten()))
            newer.update(layer.states)
        waiting = iter(sorted(ledger for ledger in newer if ledger > after))
        ahead = next(waiting, None)
        for ledger, state in stored:
            while ahead is not None and ahead < ledger:
                if (new := newer[ahead]) is not None:
                    yield ahead, new
                ahead = next(waiting, None)
            if ledger not in newer:
                yield ledger, state
        while ahead is not None:
            if (new := newer[ahead]) is not None:
                yield ahead, new
            ahead = next(waiting, None)

    # ---- checkpoints ---------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """True if the memory of the active layer makes a freeze due."""
        return self._active.memory >= INDEX_MEMORY_BYTES

    @property
    def is_half_full(self) -> bool:
        """True if the active layer has half of the memory that makes a freeze due. On any thread."""
        return 2 * self._active.memory >= INDEX_MEMORY_BYTES

    @property
    def is_overfull(self) -> bool:
        """Backpressure: true if nothing more should be added before the frozen layer is dropped."""
        return self._active.memory >= 4 * INDEX_MEMORY_BYTES

    @property
    def is_frozen(self) -> bool:
        """True if a frozen layer was not dropped yet."""
        return self._frozen is not None

    def freeze(self) -> None:
        """Freeze the active layer, for ``write_frozen``."""
        if self._frozen is not None:
            raise BugError("an index is frozen twice")
        self._frozen = self._active
        self._active = self._reusable or Layer(Memtable())
        self._reusable = None
        self.finder.frozen = self._frozen.entries
        self.finder.active = self._active.entries

    def write_frozen(
        self, stamp: Stamp | None = None, pause: Callable[[], None] = lambda: None
    ) -> None:
        """Store the frozen layer, durably, for the checkpoint of the stamp. On any thread; may be retried if it fails.
        ``pause``: called now and then; may wait. DiskError."""
        if self._frozen is None:
            raise BugError("nothing is frozen")
        self._flush = IndexFlush(self._stored, self._frozen, self._last.get, pause)
        self._flush.run(stamp)

    def renew(self) -> None:
        """Reopen the store before a retry of a ``write_frozen`` that found no space. DiskFullError: there is
        none yet."""
        self._stored.renew()

    def drop_frozen(self) -> None:
        """Drop the frozen layer, which has been written: the store answers for it from here on."""
        if self._frozen is None or self._flush is None:
            raise BugError("nothing was frozen and written")
        for ledger in self._flush.merged:
            self.finder.drop(ledger)
        self._remember(self._flush.lasts)
        self.finder.frozen = None
        self._frozen.clear()
        self._reusable, self._frozen, self._flush = self._frozen, None, None

    def flush(self, stamp: Stamp | None = None) -> None:
        """Freeze, write and drop in one call."""
        self.freeze()
        self.write_frozen(stamp)
        self.drop_frozen()

    def stamp(self) -> Stamp:
        """The checkpoint for which the stored index was last flushed. DiskError."""
        return self._stored.stamp()

    @property
    def damage(self) -> str:
        """The part of the stored index that was found unreadable, as text; empty if none was."""
        return self._stored.damage

    # ---- after a crash ---------------------------------------------------------------

    def find_lost(self, is_lost: Callable[[int, int, int], bool]) -> tuple[Changes, int]:
        """The changes, for ``drop``, that remove the stored entries whose records at [start, end) of a segment are
        gone; and the number of those entries that no newer layer has.
        """

        def is_superseded(ledger: int, entry: int) -> bool:
            return any(
                layer.entries.look_up(ledger, entry, self._place) != NOT_HERE
                for layer in self._layers()
            )

        return self._stored.find_lost(is_lost, is_superseded)

    def drop(self, changes: Changes) -> None:
        """Carry out the changes of ``find_lost``."""
        self._stored.write(changes)
        self._last.clear()
        self.finder.drop_all()

    def close(self) -> None:
        self._stored.close()
