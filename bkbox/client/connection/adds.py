"""Adds in flight: the frames of a batch of entries, and one sending of the batch to one bookie.

Frames are made once for all bookies of the ensemble. Version 3 numbers its requests. A number has to be unique on its
connection only, so even those frames are the same for every bookie.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate

from bkbox.client.connection.add_frames import AddFramer
from bkbox.client.connection.add_responses import OutstandingAdds
from bkbox.protocol.effects import SendAdds
from bkbox.protocol.events import NoResponse, RequestStatus
from bkbox.wire import v2, v3
from bkbox.wire.digest import IN_KERNEL, DigestManager
from bkbox.wire.v3_format import Operation

Buffer = bytes | bytearray | memoryview


class Add:
    """One add of an entry that is already packaged (digest.py), to one bookie."""

    __slots__ = (
        "deferred_sync",
        "entry",
        "entry_id",
        "ledger_id",
        "master_key",
        "recovery",
        "synced",
    )

    def __init__(
        self,
        ledger_id: int,
        entry_id: int,
        master_key: bytes,
        entry: bytes | memoryview,
        *,
        recovery: bool = False,
        deferred_sync: bool = False,
        synced: bool = False,
    ) -> None:
        self.ledger_id = ledger_id
        self.entry_id = entry_id
        self.master_key = master_key
        self.entry = entry
        self.recovery = recovery
        self.deferred_sync = deferred_sync
        self.synced = synced

    @property
    def needs_v3(self) -> bool:
        """True if the add needs what version 2 cannot express."""
        return self.deferred_sync or self.synced

    def v2_frame(self) -> bytes:
        flags = _V2_RECOVERY if self.recovery else 0
        request = v2.AddRequest(v2.CURRENT_VERSION, flags, self.master_key, self.entry)
        return v2.encode_request(request)

    def v3_frame(self, number: int) -> bytes:
        priority = v3.HIGH_PRIORITY if self.recovery else 0
        header = v3.Header(Operation.ADD_ENTRY, number, priority)
        return v3.encode_request(
            v3.AddRequest(
                header,
                self.ledger_id,
                self.entry_id,
                self.master_key,
                self.entry,
                recovery=self.recovery,
                deferred_sync=self.deferred_sync,
                synced=self.synced,
            )
        )


_V2_RECOVERY = v2.FLAG_RECOVERY_ADD | v2.FLAG_HIGH_PRIORITY


class AddFrames:
    """Frames of adds of one ledger, by ascending entry id.

    ``offsets``: the start of each frame, counted from an arbitrary origin, and the end of the last one. ``keys``: the
    keys of the responses, entry ids in version 2 and transaction ids in version 3.
    """

    __slots__ = ("data", "entries", "keys", "ledger_id", "offsets")

    def __init__(
        self,
        ledger_id: int,
        data: Buffer,
        offsets: Sequence[int],
        entries: Sequence[int],
        keys: Sequence[int],
    ) -> None:
        self.ledger_id = ledger_id
        self.data = data
        self.offsets = offsets
        self.entries = entries
        self.keys = keys

    def of(self, entries: Sequence[int]) -> AddFrames:
        """The frames of some entries of a batch without gaps; not copied if the entries have no gaps either."""
        if len(entries) == len(self.entries):
            return self
        first = entries[0] - self.entries[0]
        data, offsets = memoryview(self.data), self.offsets
        if isinstance(entries, range):
            end = first + len(entries)
            part = data[offsets[first] : offsets[end]]
            return AddFrames(
                self.ledger_id, part, offsets[first : end + 1], entries, self.keys[first:end]
            )
        places = [entry - self.entries[0] for entry in entries]
        frames = [data[offsets[place] : offsets[place + 1]] for place in places]
        return AddFrames(
            self.ledger_id,
            b"".join(frames),
            [0, *accumulate(map(len, frames))],
            entries,
            tuple(self.keys[place] for place in places),
        )


class Numbers:
    """Transaction ids of the requests of version 3, from 1."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = 1

    def reserve(self, count: int = 1) -> int:
        """Allocate ``count`` numbers; returns the first."""
        first = self._next
        self._next += count
        return first


class AddPacker:
    """Makes the frames of one ledger's adds; ``numbers`` for version 3, None for version 2."""

    def __init__(
        self,
        digests: DigestManager,
        master_key: bytes,
        numbers: Numbers | None,
        *,
        recovery: bool,
        deferred_sync: bool,
        synced: bool = False,
    ) -> None:
        self._digests = digests
        self._master_key = master_key
        self._numbers = numbers
        self._recovery = recovery
        self._deferred_sync = deferred_sync
        self._synced = synced
        self._framer = AddFramer(
            digests.ledger_id,
            master_key,
            _V2_RECOVERY if recovery else 0,
            digests.digest_size,
            None if digests.digest_type in IN_KERNEL else digests.digest,
        )

    def pack(self, run: SendAdds) -> AddFrames:
        """The frames of the whole batch."""
        ledger, numbers, framer = self._digests.ledger_id, self._numbers, self._framer
        payloads = list(run.payloads)
        entries = range(run.first, run.first + len(payloads))
        if numbers is None:
            data: Buffer = framer.v2(run.first, run.lac, run.length, payloads)
            return AddFrames(ledger, data, framer.offsets, entries, entries)
        number = numbers.reserve(len(payloads))
        keys = range(number, number + len(payloads))
        if self._recovery or self._deferred_sync or self._synced:
            frames = [
                self.single(run, entry).v3_frame(key)
                for entry, key in zip(entries, keys, strict=True)
            ]
            offsets = array("q", [0, *accumulate(map(len, frames))])
            return AddFrames(ledger, b"".join(frames), offsets, entries, keys)
        data = framer.v3(number, run.first, run.lac, run.length, payloads)
        return AddFrames(ledger, data, framer.offsets, entries, keys)

    def single(self, run: SendAdds, entry: int) -> Add:
        """One entry of the batch, with the same bytes as in its batch frame."""
        index = entry - run.first
        length = run.length + sum(map(len, run.payloads[: index + 1]))
        return Add(
            self._digests.ledger_id,
            entry,
            self._master_key,
            self._digests.package(entry, run.lac, length, run.payloads[index]),
            recovery=self._recovery,
            deferred_sync=self._deferred_sync,
            synced=self._synced,
        )


OnAddResponse = Callable[[int, int, RequestStatus, int], None]
"""Called with the response to the frames from a first to a last index of a sending, and the connection as in Reply.
It is called exactly once for each frame.
"""


class AddSend:
    """Frames in flight to one bookie. ``is_over`` once every frame has a status, or the remaining ones are abandoned.
    Frames that time out or lose their connection have that failure as their status.
    """

    __slots__ = (
        "_on_response",
        "deadline",
        "first_slot",
        "frame",
        "frames",
        "is_over",
        "left",
        "outstanding",
        "was_stalled",
    )

    def __init__(self, frames: AddFrames, on_response: OnAddResponse) -> None:
        self.frames = frames
        self.frame: Buffer = frames.data
        self.deadline = 0.0
        self.was_stalled = False
        self.left = len(frames.entries)
        """The number of frames without a response."""
        self.outstanding: OutstandingAdds | None = None
        self.first_slot = 0
        self.is_over = False
        self._on_response = on_response

    @property
    def last_slot(self) -> int:
        return self.first_slot + len(self.frames.entries) - 1

    def enlist(self, outstanding: OutstandingAdds) -> None:
        """Register the frames as sent, or about to be, after everything in ``outstanding``."""
        self.outstanding = outstanding
        self.first_slot = outstanding.tail
        keys = self.frames.keys
        if isinstance(keys, range):
            outstanding.push(keys[0], len(keys))
        else:
            outstanding.push_each(tuple(keys))
        outstanding.sends.append(self)

    def complete(
        self, first_slot: int, last_slot: int, status: RequestStatus, connection: int
    ) -> None:
        self.left -= last_slot - first_slot + 1
        if not self.is_over:
            self.is_over = self.left == 0
            self._on_response(
                first_slot - self.first_slot, last_slot - self.first_slot, status, connection
            )

    def fail(self, status: NoResponse) -> None:
        """Answer every outstanding frame with this failure."""
        if self.is_over:
            return
        self.is_over = True
        begin = -1
        slots = range(self.first_slot, self.last_slot + 1)
        for index, slot in enumerate(slots):
            is_open = self.outstanding is None or self.outstanding.is_open(slot)
            if is_open and begin < 0:
                begin = index
            if not is_open and begin >= 0:
                self._on_response(begin, index - 1, status, 0)
                begin = -1
        if begin >= 0:
            self._on_response(begin, len(slots) - 1, status, 0)
