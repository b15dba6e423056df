"""Packs responses to the front-end into slots of shared memory (ipc/slots.py has the format).

Space is reserved before a response is made, so that it can be made in place: an entry is read from the disk straight
to where the front-end sends it from. The header of a segment always counts everything reserved. So all reserved space
has to be filled before the next ``reserve`` that may need another slot, which ``space`` predicts.
"""

from __future__ import annotations

from collections.abc import Callable

from bkbox.errors import BugError
from bkbox.native import memory

_HEADER_BYTES = 12
_FRAMES_AT = 8
_BYTES_AT = 4
_FILL_BYTES = 2 << 20
"""Fill level from which a slot takes no more, except one larger response: a small part of a slot is used again and
again, which costs no memory and stays in the processor's cache.
"""


class ResponseWriter:
    """Fills slots, one after the other.

    ``slot``, ``view``: the present slot, for compiled code and for Python; ``used``: its used bytes.
    """

    __slots__ = (
        "_connection",
        "_frames",
        "_marked_connection",
        "_marked_frames",
        "_marked_segment",
        "_marked_used",
        "_more",
        "_segment",
        "limit",
        "slot",
        "used",
        "view",
    )

    def __init__(self, more: Callable[[int], memoryview]) -> None:
        """``more``: called with the used bytes of the full slot (0: there was none), sends it and returns the next
        free one. Its EOFError is raised by the methods here.
        """
        self._more = more
        self.view = memoryview(b"")
        self.limit = 0
        self._mark_beginning()

    def _mark_beginning(self) -> None:
        self.used = 0
        self._segment = -1
        self._connection = 0
        self._frames = 0
        self.mark()

    def reserve(self, connection: int, size: int, frames: int) -> int:
        """Reserve ``size`` bytes for ``frames`` whole responses to a connection, to be written now; returns their
        offset in ``slot``.

        Takes the next slot if this one has no space, so ``size`` may be 64 bytes less than a slot at most.
        """
        if self._segment < 0 or connection != self._connection:
            if size + _HEADER_BYTES > self.limit - self.used:
                self._next_slot(size)
            self._begin(connection)
        elif size > self.limit - self.used:
            self._next_slot(size)
            self._begin(connection)
        at = self.used
        self.used = at + size
        self._frames += frames
        memory.put_u32(
            self.slot, self._segment + _BYTES_AT, self.used - self._segment - _HEADER_BYTES
        )
        memory.put_u32(self.slot, self._segment + _FRAMES_AT, self._frames)
        return at

    def _begin(self, connection: int) -> None:
        self._connection = connection
        self._segment = self.used
        self._frames = 0
        self.used += _HEADER_BYTES
        memory.put_u32(self.slot, self._segment, connection)

    def _next_slot(self, size: int) -> None:
        view = self._more(self.used)
        self._mark_beginning()
        self.view = view
        self.slot = view
        self.limit = min(len(view), max(_FILL_BYTES, size + _HEADER_BYTES))
        if size + _HEADER_BYTES > self.limit:
            raise BugError(f"a response of {size} bytes for a slot of {len(view)}")

    def put(self, connection: int, data: bytes, frames: int) -> None:
        """Put complete responses."""
        at = self.reserve(connection, len(data), frames)
        memory.copy(self.slot, at, data, 0, len(data))

    def space(self, connection: int) -> int:
        """Bytes that can be reserved for a connection in the present slot; may be negative."""
        if self._segment >= 0 and connection == self._connection:
            return self.limit - self.used
        return self.limit - self.used - _HEADER_BYTES

    def mark(self) -> None:
        """Remember the fill level of the present slot, for ``rewind``. A new slot is marked at its beginning."""
        self._marked_used = self.used
        self._marked_segment = self._segment
        self._marked_connection = self._connection
        self._marked_frames = self._frames

    def rewind(self) -> None:
        """Release everything reserved since ``mark``."""
        self.used = self._marked_used
        self._segment = self._marked_segment
        self._connection = self._marked_connection
        self._frames = self._marked_frames
        if self._segment >= 0:
            memory.put_u32(
                self.slot, self._segment + _BYTES_AT, self.used - self._segment - _HEADER_BYTES
            )
            memory.put_u32(self.slot, self._segment + _FRAMES_AT, self._frames)

    def finish(self) -> int:
        """Leave the present slot to its owner, who sends it; returns its used bytes, 0 if there is none.

        The next response takes a slot again.
        """
        used = self.used
        self.limit = 0
        self._mark_beginning()
        return used
