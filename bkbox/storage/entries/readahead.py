"""Readers that are behind: what they need next is there when they ask for it, and leaves memory again after them.

Readers that keep up with the writers find everything in the system's page cache, and nobody is here. A ledger is
followed from the first read of it that had to wait for the disk until its reader has not waited for long.

- *Ahead.* Where all of a log is read the system reads ahead by itself, and better. Where one ledger is, of which a part
  lies here and a part there, it cannot know; so if waits come close to one another, the next entries of the ledger are
  looked up in the index, and the ranges in which they lie are asked for, further and further ahead up to
  READ_AHEAD_STREAM_BYTES. Not where they lie in crumbs: to ask for each costs more than to wait for as many as a
  request needs, at once. And a jump (a random read) asks for nothing. The whole disk has at most READ_AHEAD_BYTES
  asked for and not read; where they are used up, who has read nothing for longest gives his share back.
- *Behind.* What followed readers have read leaves memory in the order in which it was read, in chunks, once it is
  CATCH_UP_CACHE_BYTES. So a backlog that is larger than memory does not push out what the writers and the other
  readers use, and readers that go through a backlog one after the other at less than that distance (the usual case:
  several subscriptions of one topic) cost one read of the disk. Who reads the end of a ledger is not affected: a reader
  who found everything in memory for _CAUGHT_UP_BYTES is not followed any more, and the segment that is being written
  is left alone.
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
"""How far ahead of a reader at first."""

_OFTEN = 4
_OFTEN_BYTES = 256 << 10
"""A reader waits often if he has waited so many times with less than that read in between."""

_CAUGHT_UP_BYTES = 16 << 20

_BEHIND_ENTRIES = 1_024
"""How far behind the furthest one another reader may be and still be taken for the same."""

_READERS_MAX = 4
"""Readers of one ledger at different places."""

_ASK_BYTES = 512 << 10
_ENTRIES_MAX = 4_096
"""What is looked up and asked for at once, bytes and entries: bounds the time it takes."""

_CRUMB_BYTES = 16 << 10
_LATER = 256
"""Where ranges are smaller than that on average, they are looked at again after so many more waits."""

_CHUNK_BITS = 20
_CHUNKS_MAX = 16_384
"""What leaves memory at once is a chunk of a segment, with all that others read in it."""


class _Stream:
    """A reader of a ledger who goes from entry to entry.

    ``next``: the entry after the last one that was read; ``since_wait``: bytes read since the disk was waited for, or
    would have been; ``waits``: how many times that came soon after the time before; ``ahead``: the entry after the last
    one that was asked for; ``waiting``: (id after the last entry, bytes) for each time that was done, ascending;
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
    """Follows the readers of one disk. A Follower of storage/entries/entry_reader.py."""

    def __init__(self, finder: EntryLookup, log: LogReader, writing: Callable[[], int]) -> None:
        """``writing``: the segment that is being written."""
        self.following = False
        self.asked = 0
        """Bytes asked for ahead of readers and not read yet."""
        self.kept = 0
        """Bytes that readers were followed through and that were not let go of."""
        self._finder = finder
        self._log = log
        self._writing = writing
        self._streams: OrderedDict[int, list[_Stream]] = OrderedDict()
        self._chunks: dict[tuple[int, int], int] = {}

    # ---- following ----------------------------------------------------------------------------------

    def missed(self, segment: int, offset: int, size: int) -> None:
        """Ask for what will be waited for. DiskError."""
        self._log.want(segment, offset, size)

    def read(
        self, ledger: int, first: int, last: int, segment: int, start: int, end: int, waited: bool
    ) -> None:
        """See Follower: entries of a ledger were read, which lie in a part of a segment."""
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
                stream.since_wait = 0  # he would have
            for segment, start, end in ranges:
                self._log.want(segment, start, end - start)
        except DiskError:  # whoever reads it will be told
            self._end(ledger, stream)
            return
        stream.waiting.append((stream.ahead, size))
        stream.asked += size
        self.asked += size
        stream.window = min(2 * stream.window, READ_AHEAD_STREAM_BYTES)
        if size < wanted and stream.ahead + GAP_MAX <= last:
            self._end(ledger, stream)  # there is no more; where there is, he will wait again

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

    # ---- leaving memory -----------------------------------------------------------------------------

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
            return  # it was advice
