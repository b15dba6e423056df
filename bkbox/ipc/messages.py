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

from bkbox.base.words import error_text, quoted
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

DELETED_ITEM = struct.Struct("=QBQ")
"""One deleted ledger: id, whether its entries are gone, since when, ms since 1970."""

LEDGER_ID_ITEM = struct.Struct("=Q")

REGION_ITEM = struct.Struct("=IQQ")
"""A part of a segment: its id, start, end."""

BYTES_ITEM = struct.Struct("=QQ")
"""What a ledger takes on a disk: its id, bytes."""

ENTRY_ITEM = struct.Struct("=QQ")
"""One entry: ledger, id."""

SEGMENT_ITEM = struct.Struct("=IQQ")
"""One segment: id, bytes of its file, bytes of the entries in it that are live."""

FENCED = 1
LIMBO = 2
ACTIVE = 4


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
                f"control message {type(self).__name__} with fields {', '.join(sorted(values))} is not known"
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
    """Open the disk and replay its log. ``generation``: of this start of the bookie; ``seen``: what others know of the
    disk, as DiskStore.durable has it. The one descriptor is that of the disk's lock. Reply: DiskOpened or Refused.
    """

    path: str
    journal: str
    ack_after: str
    host_crash: bool
    is_clean: bool
    generation: int
    seen: list[int]
    segment_bytes_max: int
    checkpoint_bytes: int
    slow_operation_ms: int
    disk_usage_max: float
    disk_reserve_bytes: int
    disk_usage_resume: float = 0.0


class IndexProgress(Message):
    """Said by a worker that makes the index of its disk anew before it opens it: bytes read of the log, and of all."""

    done_bytes: int
    total_bytes: int


class DiskOpened(Message):
    """What the replay found (storage/disk.py, ReplayReport). ``rebuilt``: why the index was made anew, empty if it was
    not.
    """

    disk: str
    records: int
    entries: int
    replayed_bytes: int
    cut_bytes: int
    damaged: list[str]
    trusted: bool
    intact: bool
    synced_ms: int
    rebuilt: str = ""


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


class StayReadOnly(Message):
    """Which of bookie/readonly.py's INTENTS there are for this disk, from now on. Reply: Done."""

    reasons: list[str]


class AttachFrontend(Message):
    """The one descriptor with this message is the link to the front-end; serve it."""


class AttachRepair(Message):
    """The one descriptor with this message is a channel to the repair worker; answer its calls."""


class GetStats(Message):
    """Reply: Stats."""


class Stats(Message):
    values: dict[str, Any]


class GetLatency(Message):
    """How long adds took since this was last asked, by the one who asks: the repair worker. Reply: Latency."""


class Latency(Message):
    """From the front-end's batch until what the adds wait for was durable; microseconds."""

    adds: int
    p99_us: int


class Stop(Message):
    """Finish what was begun, make it durable and exit. Reply: Stopped."""


class Stopped(Message):
    """``clean``: everything is durable, the dirty marker may be cleared. ``durable``: as DiskStore has it."""

    clean: bool
    reason: str = ""
    durable: list[int] | None = None


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


# ---- space (worker/space.py): repair worker and supervisor to disk worker ---------------------------


class ProbeDisk(Message):
    """Write a small file of its own on the disk and read it back. Reply: Probed."""


class Probed(Message):
    """``problem``: why it did not work; empty where it did."""

    problem: str = ""


class GetSpace(Message):
    """Reply: Space."""


class Space(Message):
    """What the disk's room is used for, and how far scrub and compaction are."""

    values: dict[str, Any]


class ExplainSegment(Message):
    """Why a segment is kept. Reply: Space."""

    segment: int


class ListDeleted(Message):
    """One page of deleted ledgers with an id > ``after``, in order. Reply: Page of DELETED_ITEM."""

    after: int = -1


class ListBytes(Message):
    """What ledgers with an id > ``after`` take on the disk, in order, without those in the trash. The answer to the
    first page (-1) may be empty with more to come: the disk is still counting; ask again. Reply: Page of BYTES_ITEM."""

    after: int = -1


class ChangeLedgers(Message):
    """Do something to the ledgers of the payload (LEDGER_ID_ITEM each), durably. ``action``: 'trash' (``now_ms``: since
    when), 'restore', 'empty' (remove the entries of those in the trash) or 'forget' (those that are empty). One of
    which something else has become meanwhile is left alone. Reply: Changed."""

    action: str
    now_ms: int = 0


class Changed(Message):
    ledgers: int


class SurveyIndex(Message):
    """Go on looking through the index, or ``begin`` to: entries are looked for that lie in the regions of the payload
    (REGION_ITEM each), or in segments that are not there. Reply: Surveyed."""

    begin: bool = False


class Surveyed(Message):
    """Payload: entries that were found and cannot be read (ENTRY_ITEM each)."""

    done: bool


class ListSegments(Message):
    """One page of sealed segments with an id > ``after``, in order, by what the last survey found. Reply: Page of
    SEGMENT_ITEM."""

    after: int = 0


class CompactSegment(Message):
    """Go on copying what counts out of a segment, or ``begin`` to. Reply: Compacted."""

    segment: int
    begin: bool = False


class Compacted(Message):
    """``wait``: nothing was done, as too much waits to be stored. Payload, when ``done``: bad regions."""

    done: bool
    wait: bool = False
    read_bytes: int = 0
    entries: int = 0
    bytes: int = 0


class StoreAll(Message):
    """Have a checkpoint taken that covers all that was written before the call that says ``begin``. Reply: Stored;
    asked again until it is ``done``."""

    begin: bool = False


class Stored(Message):
    done: bool


class SpendReserve(Message):
    """Give the room of the reserve to the compaction that asks. Reply: Stored; not ``done`` where there is none."""


class RemoveSegment(Message):
    """Remove a segment that was copied, if a survey since found nothing in it. Reply: Removed."""

    segment: int


class Removed(Message):
    """``why``: why it is still there; empty if it is not."""

    why: str = ""
    bytes: int = 0


class ScrubSegment(Message):
    """Verify some records of a segment from ``offset`` on. Reply: Scrubbed."""

    segment: int
    offset: int = 0


class Scrubbed(Message):
    """``offset``: where to go on, ``done``: there is no more, ``regions``: how many bad ones there are. Payload: these
    (REGION_ITEM each), then entries that the index does not name (ENTRY_ITEM each)."""

    offset: int
    done: bool
    read_bytes: int
    records: int
    regions: int


class NoteScrub(Message):
    """Note durably that the scrub has dealt with all segments before this one; 0: with all there were. ``now_ms``: the
    present time. ``bad``: what cannot be read in the last segment that it has dealt with, (segment, start, end) each.
    Reply: Done."""

    segment: int
    now_ms: int
    bad: list[tuple[int, int, int]]


class NoteCompared(Message):
    """Note durably that in the present pass all ledgers before this one were compared with other bookies.

    Reply: Done.
    """

    ledger: int


SPACE_CALLS = (
    ProbeDisk,
    GetSpace,
    ExplainSegment,
    ListDeleted,
    ListBytes,
    ChangeLedgers,
    SurveyIndex,
    ListSegments,
    CompactSegment,
    StoreAll,
    SpendReserve,
    RemoveSegment,
    ScrubSegment,
    NoteScrub,
    NoteCompared,
)


# ---- supervisor to front-end ------------------------------------------------------------------------


class OpenFrontend(Message):
    """Serve. The one descriptor is the bound socket; it is opened once the disks in ``attached`` have
    listed their ledgers, or are lost. ``disk_paths``: folders whose file systems make up the bookie's size."""

    frame_bytes_max: int
    connection_inflight_bytes_max: int
    disks: list[str]
    disk_paths: list[str]
    attached: list[str]
    connections_max: int = 100_000
    connections_per_peer_max: int = 0
    handshake_timeout_s: float = 10.0
    frame_timeout_s: float = 60.0
    answers_timeout_s: float = 60.0
    idle_timeout_s: float = 0.0


class Admit(Message):
    """Who is let in from now on, before OpenFrontend and whenever it changes (frontend/admittance.py); the payload is
    JSON, with the secrets that the configuration leads to. No reply."""

    def __repr__(self) -> str:
        return "Admit(…)"


class AttachDisk(Message):
    """The one descriptor is the link to the worker of this disk."""

    disk: str


class DiskAway(Message):
    """This disk is about to be marked: create no ledger before it has listed its ledgers again. Reply: Done."""

    disk: str


class NewLedgers(Message):
    """Whether clients may create ledgers, from now on; at first they may. What fences, recovers or repairs always may.

    ``free``: bytes for new ledgers by disk, which get them in proportion; ``closed``: disks that get none at all. Reply
    to a call: Done."""

    allowed: bool
    free: dict[str, int] = {}  # noqa: RUF012 - never changed
    closed: list[str] = []  # noqa: RUF012


class Listening(Message):
    """Unasked, front-end to supervisor: the ledgers of the attached disks are known and the port is open."""


class CheckLedger(Message):
    """Unasked, front-end to supervisor: what does the metadata store know of this ledger? LedgerChecked follows."""

    ledger: int


class LedgerChecked(Message):
    """``finding``: the value of one of vouching.Finding; the payload is the ledger's key, empty where its metadata have
    no password."""

    ledger: int
    finding: str


# ---- supervisor to repair worker --------------------------------------------------------------------


class OpenRepair(Message):
    """What the jobs of this bookie work with, and what they may spend in all; 0: no bound. ``client``: options of the
    client that reaches other bookies, beside those of racks. Descriptors follow by AttachDisk."""

    bookie: str
    metadata: str
    metadata_wait_s: float
    entries_in_flight: int
    disk_bytes_per_second: int
    network_bytes_per_second: int
    metadata_calls_per_second: int
    p99_growth_max: float
    ledgers_at_once: int
    retry_initial_s: float
    retry_max_s: float
    topology_script: str
    rack_map: str
    autorecovery: bool = False
    open_ledger_grace_s: float = 30.0
    lost_bookie_delay_s: int = 60
    full_check_interval_s: float = 0.0
    gc_interval_s: float = 0.0
    gc_confirm_s: float = 0.0
    gc_trash_s: float = 0.0
    gc_remember_s: float = 0.0
    gc_overreplicated_s: float = 0.0
    compaction_garbage_ratio: float = 1.0
    quotas: list[str] = []  # noqa: RUF012 - never changed
    quota_interval_s: float = 60.0
    client: dict[str, Any] = {}  # noqa: RUF012 - never changed


# ---- quotas: repair worker to supervisor (supervisor/quotas.py) ----------------------------------------


class OverQuota(Message):
    """And from there to the front-end: ledgers whose owner has all that it may have, LEDGER_ID_ITEM each, a page of
    them; those of before hold until the last page is there."""

    more: bool = False


OVER_QUOTA_PAGE = 8_192
"""Ledgers in one of them."""


class QuotaUse(Message):
    """What owners have: (owner, bytes, bytes that it may have, whether it is over) each, ``others`` more are not named
    for brevity; ``looked_ms``: when that was. ``problem``: why it could not be found out, and what was told before
    stands."""

    owners: list[list[Any]] = []  # noqa: RUF012 - never changed
    others: int = 0
    looked_ms: int = 0
    problem: str = ""


QUOTA_NEWS = (OverQuota, QuotaUse)


# ---- a ledger moves from one disk to another (worker/moves.py, supervisor/moving.py) ----------------


class GetLedger(Message):
    """To a disk worker. Reply: LedgerIs."""

    ledger: int


class LedgerIs(Message):
    """A ledger on a disk. ``state``: records.encode_state in hex; ``payload``: its explicit LAC packet, or nothing."""

    known: bool
    limbo: bool = False
    state: str = ""


EVERYTHING = [0, 0]
"""The place in the log at which all of it begins."""


class BeginArrival(Message):
    """To the worker of the target: make a copy of a ledger that counts for nothing yet; one that was begun before is
    begun anew. ``state`` and ``payload`` as of LedgerIs. Reply: Done."""

    ledger: int
    state: str


class ReadLedger(Message):
    """To that of the source: put the next entries of a ledger into the file of the one descriptor, each after its
    length (u32). ``since``: begin a pass, with what lies at or behind this place in the log, which is EVERYTHING or
    where an earlier pass with this worker began; else go on with the present pass. Reply: EntriesRead."""

    ledger: int
    since: list[int] | None = None


class EntriesRead(Message):
    """``size``: bytes in the file; ``more``: the pass goes on; ``bad``: entries that are there, cannot be read, and are
    left out; ``began``: the end of the log when the pass began, for ``since`` of the next one."""

    entries: int
    size: int
    more: bool
    bad: list[int]
    began: list[int]


class TakeEntries(Message):
    """To that of the target: store the entries in the first ``size`` bytes of the one descriptor's file; refused where
    no arrival of the ledger is under way. Reply: Taken."""

    ledger: int
    size: int


class Taken(Message):
    """``crowded``: nothing was taken, the disk has more to do than it can; try again."""

    crowded: bool


class LeaveLedger(Message):
    """To that of the source: everything that came for the ledger is done and answered; note durably that it is about to
    have its home on the disk ``target``. Nothing changes it from here on. Reply: LedgerIs."""

    ledger: int
    target: str


class EndArrival(Message):
    """To that of the target. With ``commit``: what came is the whole ledger, in this state; make it durable, and its
    home is here from then on; refused where no arrival is under way. Without: forget what came, if its home is not
    here. ``state`` and ``payload`` as of LedgerIs. Reply: Arrived."""

    ledger: int
    commit: bool
    state: str = ""


class Arrived(Message):
    """``at_home``: whether the ledger has its home on this disk."""

    at_home: bool


class EndLeave(Message):
    """To that of the source: the ledger is ``gone``: forget it, durably; or it stays. Nothing is done where it is not
    about to leave. Reply: Done."""

    ledger: int
    gone: bool


class ListMoves(Message):
    """To a disk worker. Reply: MovesAre."""


class MovesAre(Message):
    """``arriving``: ledgers of which a copy is made there; ``leaving``: for ledgers that are about to leave, in text,
    the disk that they leave for."""

    arriving: list[int]
    leaving: dict[str, str]


MOVES_ON_DISKS = (
    GetLedger,
    BeginArrival,
    ReadLedger,
    TakeEntries,
    LeaveLedger,
    EndArrival,
    EndLeave,
    ListMoves,
)


class HoldLedger(Message):
    """To the front-end: everything that came for the ledger is with its worker; what comes now waits. Reply: Done."""

    ledger: int


class PlaceLedger(Message):
    """To the front-end: the ledger is on this disk, and nobody waits any more. Reply: Done."""

    ledger: int
    disk: str


MOVES_OF_LEDGERS = (HoldLedger, PlaceLedger)


class MoveLedger(Message):
    """Repair worker to supervisor: all of the ledger but what was written ``since`` (as of ReadLedger) is on ``target``
    already: copy the rest, and let its home be there. Reply: Moved."""

    ledger: int
    source: str
    target: str
    since: list[int]


class FindRoom(Message):
    """Repair worker to supervisor: to which disk is the next ledger of this one to move? Reply: RoomIs."""

    disk: str


class RoomIs(Message):
    """``disk``: the one with the most room; empty: there is none, and ``why``."""

    disk: str
    why: str = ""


class Moved(Message):
    """``moved``: it is done, or the ledger is not there any more; else ``why`` not, and it is where it was."""

    moved: bool
    why: str = ""


# ---- disks that come and go -------------------------------------------------------------------------


class DiskJoins(Message):
    """Supervisor to front-end: a new disk, which is attached later. ``replaces``: the disk that it stands in for, under
    which its ledgers are known. Reply: Done."""

    disk: str
    path: str
    replaces: str = ""


class DiskLeaves(Message):
    """Supervisor to front-end: this disk, which holds no ledgers, is not there any more. Reply: Done."""

    disk: str


DISKS_CHANGE = (DiskJoins, DiskLeaves)


class Draining(Message):
    """Repair worker to supervisor: whether a disk is to give away its ledgers and takes no new ones. Refused with the
    reason why it cannot. Reply: Done, once that is so."""

    disk: str
    wanted: bool


class Retiring(Message):
    """Repair worker to supervisor: whether the bookie is to take no more entries, as it is being decommissioned.
    Reply: Done, once that is so."""

    wanted: bool


# ---- jobs: supervisor to repair worker and back -----------------------------------------------------


class StartJob(Message):
    """Run a job (bkbox/jobs); ``id`` is not known yet, or its earlier run ended with its process. No reply."""

    id: int
    kind: str
    arguments: dict[str, str]


class ControlJob(Message):
    """``action``: a JobAction. ``bytes_per_second`` goes with 'rate'; it is for the whole of the jobs where ``id``
    is 0. No reply, and nothing happens where the job has ended."""

    id: int
    action: str
    bytes_per_second: int = 0


class JobReport(Message):
    """Unasked, repair worker to supervisor: ``id`` and those fields of a Job that its run decides."""

    values: dict[str, Any]


# ---- supervisor to workers and front-end: a changed configuration -----------------------------------


class Settings(Message):
    """The keys of the configuration that can change while it runs, all of them, with what they are now. No reply."""

    values: dict[str, Any]


_TYPES = {kind.__name__: kind for kind in Message.__subclasses__()}


def encode(message: Message) -> bytes:
    values = {"type": type(message).__name__, **vars(message)}
    payload: bytes = values.pop("payload", b"")
    header = json.dumps(values, separators=(",", ":")).encode()
    return _LENGTH.pack(len(header)) + header + payload


_UNDECODABLE = (struct.error, ValueError, LookupError, TypeError, AttributeError, RecursionError)


def decode(data: bytes) -> Message:
    """Raises BugError: both ends are ours, so a message that does not decode is a defect."""
    try:
        (length,) = _LENGTH.unpack_from(data)
        values = json.loads(data[_LENGTH.size : _LENGTH.size + length])
        name = values.pop("type")
        kind = _TYPES.get(name)
        if kind is not None:
            return kind(payload=data[_LENGTH.size + length :], **values)
    except _UNDECODABLE as error:
        raise BugError(f"a control message cannot be decoded: {error_text(error)}") from error
    raise BugError(f"control message {quoted(name)} is not known")
