"""Control messages between the supervisor, the workers, the front-end and the repair worker.

A message on the wire is: header length u32 | header (JSON) | payload (raw bytes). JSON and not pickle: a process that
was taken over must not be able to run code in its neighbours. ``call`` pairs a request with its reply; 0 means that
none is expected. Large lists travel in the payload, in pages of at most PAGE_ITEMS items, because one message has
to fit into a socket buffer.

Messages look like dataclasses, to readers and to mypy, and are none: a dataclass costs a millisecond when it is
defined, every process of a bookie defines all of these before it serves, and few are made in its whole life.
"""

from __future__ import annotations

import json
import struct
from typing import Any, ClassVar, dataclass_transform

from bkbox.errors import BugError

_LENGTH = struct.Struct("=I")

PAGE_ITEMS = 2_048
"""Items in one page of ledgers, marks or runs."""

LEDGER_ITEM = struct.Struct("=QB")
"""One ledger in a page: id, flags."""

MARK_ITEM = struct.Struct("=QBB20s")
"""One mark of phase one: ledger id, flags to set, whether a key follows, master key."""

RANGE_ITEM = struct.Struct("=QQ")
"""One range of entry ids, both ends included."""

FENCED = 1
LIMBO = 2


@dataclass_transform(kw_only_default=True)
class _Fields:
    """A class whose annotations are its fields, those of its bases included, given by keyword."""

    _names: ClassVar[frozenset[str]] = frozenset()
    _required: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls) -> None:
        own = cls.__annotations__.keys()
        cls._names = cls._names | own
        cls._required = cls._required | {name for name in own if not hasattr(cls, name)}

    def __init__(self, **values: Any) -> None:
        if not self._required <= values.keys() <= self._names:
            raise BugError(
                f"control message {type(self).__name__} with fields {sorted(values)} is not known"
            )
        vars(self).update(values)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(
            getattr(self, name) == getattr(other, name) for name in self._names
        )

    __hash__ = None  # type: ignore[assignment] # as that of a dataclass that can change

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in vars(self).items())})"


class Message(_Fields):
    """Base of all messages; ``payload`` is not part of the JSON header."""

    call: int = 0
    payload: bytes = b""


# ---- supervisor to worker ---------------------------------------------------------------------------


class OpenDisk(Message):
    """Open the disk and replay its log. The one descriptor is that of the disk's lock. Reply: DiskOpened or Refused."""

    path: str
    journal: str
    ack_after: str
    host_crash: bool
    segment_bytes_max: int
    checkpoint_bytes: int
    slow_operation_ms: int
    disk_usage_max: float
    disk_reserve_bytes: int


class DiskOpened(Message):
    """What the replay found."""

    disk: str
    records: int
    entries: int
    replayed_bytes: int
    cut_bytes: int
    damaged: list[str]
    trusted: bool


class Refused(Message):
    """The call could not be carried out: error type name and text."""

    error: str
    text: str


class ListLedgers(Message):
    """One page of ledgers with an id > ``after``, in order. Reply: Page of LEDGER_ITEM."""

    after: int = -1
    limbo_only: bool = False


class Page(Message):
    """Items are in the payload; ``more`` says whether another page follows."""

    more: bool = False


class MarkLedgers(Message):
    """Fence and put into limbo the ledgers of the payload (MARK_ITEM each). Reply: Done once it is durable."""


class Settle(Message):
    """What earlier runs may have lost is accounted for: the disk may move its checkpoint on. Reply: Done."""


class Done(Message):
    """The call was carried out."""


class AttachFrontend(Message):
    """The one descriptor with this message is the link to the front-end; serve it."""


class AttachRepair(Message):
    """The one descriptor with this message is a channel to the repair worker; answer its calls."""


class GetStats(Message):
    """Reply: Stats."""


class Stats(Message):
    values: dict[str, Any]


class Stop(Message):
    """Finish what was begun, make it durable and exit. Reply: Stopped."""


class Stopped(Message):
    """``clean``: everything is durable, the dirty marker may be cleared."""

    clean: bool
    reason: str = ""


class DiskTrouble(Message):
    """Unasked, worker to supervisor: the disk failed; the next start must be a host crash."""

    reason: str


# ---- repair worker to disk worker -------------------------------------------------------------------


class ListRuns(Message):
    """Entries that the index has for a ledger from ``first`` on. Reply: Page of RANGE_ITEM."""

    ledger: int
    first: int = 0


class CheckEntries(Message):
    """Read the entries of a range that the index has and verify their records. Reply: Page with those
    that cannot be read (RANGE_ITEM)."""

    ledger: int
    first: int
    last: int


class ClearLimbo(Message):
    """Make the ledger's entries durable, then take it out of limbo, durably. Reply: Done."""

    ledger: int


# ---- supervisor to front-end ------------------------------------------------------------------------


class OpenFrontend(Message):
    """Serve. The one descriptor is the bound socket; it is opened once the disks in ``attached`` have
    listed their ledgers, or are lost. ``disk_paths``: folders whose file systems make up the bookie's size."""

    frame_bytes_max: int
    connection_inflight_bytes_max: int
    disks: list[str]
    disk_paths: list[str]
    attached: list[str]


class AttachDisk(Message):
    """The one descriptor is the link to the worker of this disk."""

    disk: str


class DiskAway(Message):
    """This disk is about to be marked: create no ledger before it has listed its ledgers again. Reply: Done."""

    disk: str


class NewLedgers(Message):
    """Whether clients may create ledgers, from now on; at first they may. What fences, recovers or repairs always may.
    No reply."""

    allowed: bool


class Listening(Message):
    """Unasked, front-end to supervisor: the ledgers of the attached disks are known and the port is open."""


# ---- supervisor to repair worker --------------------------------------------------------------------


class OpenRepair(Message):
    """Start repairing. Descriptors follow by AttachDisk."""

    bookie: str
    metadata: str
    metadata_wait_s: float
    entries_in_flight: int
    bytes_per_second: int
    ledgers_at_once: int
    retry_initial_s: float
    retry_max_s: float
    topology_script: str
    rack_map: str


class RepairProgress(Message):
    """Unasked, repair worker to supervisor: the whole state of phase two as the status document shows it."""

    values: dict[str, Any]


_TYPES = {kind.__name__: kind for kind in Message.__subclasses__()}


def encode(message: Message) -> bytes:
    values = {"type": type(message).__name__, **vars(message)}
    payload: bytes = values.pop("payload", b"")
    header = json.dumps(values, separators=(",", ":")).encode()
    return _LENGTH.pack(len(header)) + header + payload


def decode(data: bytes) -> Message:
    """Raises BugError: both ends are ours, so a message that does not decode is a defect."""
    (length,) = _LENGTH.unpack_from(data)
    values = json.loads(data[_LENGTH.size : _LENGTH.size + length])
    name = values.pop("type")
    kind = _TYPES.get(name)
    if kind is None:
        raise BugError(f"control message {name!r} is not known")
    return kind(payload=data[_LENGTH.size + length :], **values)
