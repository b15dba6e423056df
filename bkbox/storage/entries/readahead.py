"""Read-ahead for catch-up readers: their next entries are in the page cache when requested, and leave it afterwards.

Readers that keep up with the writers find everything in the page cache, and are not tracked. A reader of a ledger is
tracked from the first read that had to wait for the disk until it has not waited for long.

- *Ahead.* When all of a log is read the system reads ahead by itself, and better. It cannot when a single ledger is
  read that is scattered over the log. So if waits come close to one another, the next entries of the ledger are
  looked up in the index, and their ranges are requested, further and further ahead up to READ_AHEAD_STREAM_BYTES. Not
  if the ranges are tiny: requesting each costs more than one wait for all that a read request needs. A jump (a random
  read) requests nothing. The whole disk has at most READ_AHEAD_BYTES requested and not read; when they are used up,
  the least recently used reader's budget is evicted.
- *Behind.* The bytes that tracked readers have read leave memory in the order in which they were read, in chunks,
  once they reach CATCH_UP_CACHE_BYTES. So a backlog larger than memory does not evict the data that the writers and
  the other readers use. Readers that go through a backlog one after the other at less than that distance (the usual
  case: several subscriptions of one topic) cost one read of the disk. A reader of the end of a ledger is not
  affected: one that found everything in memory for _CAUGHT_UP_BYTES is no longer tracked, and the segment that is
  being written is left alone.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable

from bkbox.base.ids import MAX_ID
from bkbox.base.limits import (
    CATCH_UP_CACHE_BYTES,
    CATCH_UP_LEDGERS_MAX,
    READ_AHEAD_BYTES,
    READ_AHEAD_STREAM_BYTES,
)
from bkbox.errors import DiskError
from bkbox.storage.index.memtable import EntryLookup
from bkbox.storage.index.readahead_lookup import GAP_MAX, stretch
from bkbox.storage.log.log_reader import LogReader

_FIRST_BYTES = 256 << 10
"""Read-ahead distance of a reader at first."""

_OFTEN = 4
_OFTEN_BYTES = 256 << 10
"""A reader waits often if it has waited this many times with less than this read in between."""

_CAUGHT_UP_BYTES = 16 << 20

_BEHIND_ENTRIES = 1_024
"""Distance behind the furthest reader at which another one still counts as the same."""

_READERS_MAX = 4
"""Tracked readers of one ledger at different positions."""

_ASK_BYTES = 512 << 10
_ENTRIES_MAX = 4_096
"""Bytes and entries that are looked up and requested at once; bounds the time that it takes."""

_CRUMB_BYTES = 16 << 10
_LATER = 256
"""If ranges are smaller than this on average, they are checked again after this many more waits."""

_CHUNK_BITS = 20
_CHUNKS_MAX = 16_384
"""The unit of eviction: a chunk of a segment, with the data that all readers read in it."""


class _Stream:
    """A sequential reader of a ledger.

    ``next``: the entry after the last one read; ``since_wait``: bytes read since the last wait for the disk, or since
    one would have come; ``waits``: number of waits that came soon after the one before; ``ahead``: the entry after
    the last one requested; ``waiting``: (id after the last entry, bytes) of each outstanding request, ascending;
    ``asked``: bytes of them all.
    """

    __slots__ = ("ahead", "asked", "next", "since_wait", "waiting", "waits", "window")

    def __init__(self, next_entry: int) -> None:
        self.next = self.ahead = next_entry
        self.since_wait = 0
        self.waits = 0
        self.window = _FIRST_BYTES
        self.waiting: deque[tuple[int, int]] = deque()
        self.asked = 0


class ReadAhead:
    """Tracks the readers of one disk. A ReadaheadState of storage/entries/entry_reader.py."""

    def __init__(self, finder: EntryLookup, log: LogReader, writing: Callable[[], int]) -> None:
        """``writing``: the segment that is being written."""
        self.following = False
        self.asked = 0
        """Bytes requested ahead of readers and not read yet."""
        self.kept = 0
        """Bytes that tracked readers have read and that were not evicted."""
        self._finder = finder
        self._log = log
        self._writing = writing
        self._streams: OrderedDict[int, list[_Stream]] = OrderedDict()
        self._chunks: dict[tuple[int, int], int] = {}

    # ---- tracking -----------------------------------------------------------------------------------

    def missed(self, segment: int, offset: int, size: int) -> None:
        """Request the bytes that will be waited for. DiskError."""
        self._log.want(segment, offset, size)

    def read(
        self, ledger: int, first: int, last: int, segment: int, start: int, end: int, waited: bool
    ) -> None:
        """See ReadaheadState: entries of a ledger were read, which lie in a part of a segment."""
        streams = self._streams.get(ledger)
        if streams is None:
            if waited:
                self._follow(ledger, last + 1)
                self._read_through(segment, start, end)
            return
        stream = None
        for candidate in streams:
            reach = max(candidate.next, candidate.ahead) + GAP_MAX
            if candidate.next - _BEHIND_ENTRIES <= first <= reach:
                stream = candidate
        if stream is None:
            if waited:
                self._follow(ledger, last + 1)
        elif last >= stream.next:
            self._streams.move_to_end(ledger)
            self._go_on(ledger, stream, last + 1, end - start, waited)
        self._read_through(segment, start, end)

    def _follow(self, ledger: int, next_entry: int) -> None:
        streams = self._streams.setdefault(ledger, [])
        if len(streams) == _READERS_MAX:
            self.asked -= streams.pop(0).asked
        streams.append(_Stream(next_entry))
        self._streams.move_to_end(ledger)
        if len(self._streams) > CATCH_UP_LEDGERS_MAX:
            self._forget_oldest()
        self.following = True

    def _go_on(
        self, ledger: int, stream: _Stream, next_entry: int, size: int, waited: bool
    ) -> None:
        stream.next = next_entry
        if waited:
            if stream.since_wait < _OFTEN_BYTES:
                stream.waits += 1
            elif stream.waits < _OFTEN:
                stream.waits = 0
            stream.since_wait = 0
        else:
            stream.since_wait += size
            if stream.since_wait > _CAUGHT_UP_BYTES:
                self._end(ledger, stream)
                return
        while stream.waiting and stream.waiting[0][0] <= next_entry:
            _after, read = stream.waiting.popleft()
            stream.asked -= read
            self.asked -= read
        if stream.waits >= _OFTEN and stream.asked <= stream.window // 4 * 3:
            self._ask(ledger, stream)

    def _ask(self, ledger: int, stream: _Stream) -> None:
        while self.asked >= READ_AHEAD_BYTES and next(iter(self._streams)) != ledger:
            self._forget_oldest()
        wanted = min(stream.window - stream.asked, READ_AHEAD_BYTES - self.asked, _ASK_BYTES)
        if wanted <= 0:
            return
        begin = max(stream.ahead, stream.next)
        last = min(begin + _ENTRIES_MAX, MAX_ID - 1)  # so that one more is an id, too
        if begin > last:
            self._end(ledger, stream)
            return
        try:
            stream.ahead, size, ranges = stretch(self._finder, ledger, begin, last, wanted)
            if size < _CRUMB_BYTES * (len(ranges) - 1):
                stream.waits = -_LATER
                return
            if ranges and not self._log.is_cached(ranges[-1][0], ranges[-1][2] - 1):
                stream.since_wait = 0  # it would have waited
            for segment, start, end in ranges:
                self._log.want(segment, start, end - start)
        except DiskError:  # the read itself will fail
            self._end(ledger, stream)
            return
        stream.waiting.append((stream.ahead, size))
        stream.asked += size
        self.asked += size
        stream.window = min(2 * stream.window, READ_AHEAD_STREAM_BYTES)
        if size < wanted and stream.ahead + GAP_MAX <= last:
            self._end(ledger, stream)  # there is no more; if there is, it will wait again

    def _end(self, ledger: int, stream: _Stream) -> None:
        self.asked -= stream.asked
        self._streams[ledger].remove(stream)
        if not self._streams[ledger]:
            del self._streams[ledger]
        self.following = bool(self._streams)

    def _forget_oldest(self) -> None:
        _ledger, streams = self._streams.popitem(last=False)
        self.asked -= sum(stream.asked for stream in streams)
        self.following = bool(self._streams)

    # ---- eviction -----------------------------------------------------------------------------------

    def _read_through(self, segment: int, start: int, end: int) -> None:
        chunk = segment, start >> _CHUNK_BITS
        self._chunks[chunk] = self._chunks.get(chunk, 0) + end - start
        self.kept += end - start
        while self.kept > CATCH_UP_CACHE_BYTES or len(self._chunks) > _CHUNKS_MAX:
            self._let_go()

    def _let_go(self) -> None:
        segment, number = chunk = next(iter(self._chunks))
        self.kept -= self._chunks.pop(chunk)
        if segment == self._writing():
            return
        try:
            self._log.release(segment, number << _CHUNK_BITS, 1 << _CHUNK_BITS)
        except DiskError:
            return  # it is only advice
