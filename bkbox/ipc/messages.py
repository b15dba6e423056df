"""Control messages between the supervisor, the workers, the front-end and the repair worker.

A message on the wire is: header length u32 | header (JSON) | payload (raw bytes). JSON and not pickle: a compromised
process must not be able to run code in the others. ``call`` pairs a request with its reply; 0 means that no reply is
expected. Large lists travel in the payload, in pages of at most PAGE_ITEMS items, because a message must fit into a
socket buffer.

Messages look like dataclasses, to readers and to mypy, but are not: a dataclass costs a millisecond to define, every
process of a bookie defines all of these before it serves, and creates few of them.
"""

from __future__ import annotations

import json
import struct
from typing import Any, ClassVar, dataclass_transform

from bkbox.base.text import error_text, quoted
from bkbox.errors import BugError

_LENGTH = struct.Struct("=I")

PAGE_ITEMS = 2_048
"""Items in one page of ledgers, marks or ranges."""

LEDGER_ITEM = struct.Struct("=QB")
"""One ledger in a page: id, flags."""

MARK_ITEM = struct.Struct("=QBB20s")
"""One mark of phase one: ledger id, flags to set, 1 if a key follows, master key."""

RANGE_ITEM = struct.Struct("=QQ")
"""One range of entry ids, both ends included."""

DELETED_ITEM = struct.Struct("=QBQ")
"""One deleted ledger: id, 1 if its entries are removed, time of deletion in ms since 1970."""

LEDGER_ID_ITEM = struct.Struct("=Q")

PLACEMENT_ITEM = struct.Struct("=Qi")
"""A ledger and its disk, as an index."""

REGION_ITEM = struct.Struct("=IQQ")
"""A region of a segment: its id, start, end."""

BYTES_ITEM = struct.Struct("=QQ")
"""The usage of a ledger on a disk: its id, bytes."""

ENTRY_ITEM = struct.Struct("=QQ")
"""One entry: ledger, id."""

SEGMENT_ITEM = struct.Struct("=IQQ")
"""One segment: id, bytes of its file, bytes of its live entries."""

FENCED = 1
LIMBO = 2
ACTIVE = 4


@dataclass_transform(kw_only_default=True)
class _Fields:
    """A class whose annotations, those of its bases included, are its fields, passed by keyword."""

    _names: ClassVar[frozenset[str]] = frozenset()
    _required: ClassVar[frozenset[str]] = frozenset()
    recipients: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, to: str = "") -> None:
        cls.recipients = frozenset(to.split())
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

    __hash__ = None  # type: ignore[assignment] # like a mutable dataclass

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in vars(self).items())})"


class Message(_Fields):
    """Base of all messages; ``payload`` is not part of the JSON header.

    ``to`` in a definition: the processes that handle the message, by table (ipc/handlers.py) except in the supervisor.
    A reply has none: it goes to its caller.
    """

    call: int = 0
    payload: bytes = b""


# ---- child to supervisor ----------------------------------------------------------------------------


class ChildStarted(Message, to="supervisor"):
    """Unsolicited, the first message of each child (ipc/child.py). ``kernel``: 'compiled' or 'interpreted'."""

    kernel: str


# ---- supervisor to worker ---------------------------------------------------------------------------


class OpenDisk(Message, to="worker"):
    """Open the disk and replay its log. ``generation``: that of this start of the bookie. ``seen``: the disk's durable
    position as others know it, in the form of DiskStore.durable. The one descriptor is that of the disk's lock. Reply:
    DiskOpened or Refused.
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


class IndexProgress(Message, to="supervisor"):
    """From a worker that rebuilds its disk's index before it opens it: bytes of the log read, and bytes in total."""

    done_bytes: int
    total_bytes: int


class DiskOpened(Message):
    """The replay's result (storage/disk/disk.py, ReplayReport). ``rebuilt``: the reason why the index was rebuilt;
    empty if it was not."""

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


class ListLedgers(Message, to="worker"):
    """One page of ledgers with an id > ``after``, in order. Reply: Page of LEDGER_ITEM."""

    after: int = -1
    limbo_only: bool = False


class Page(Message):
    """A page of a list. Its items are in the payload; ``more``: another page follows."""

    more: bool = False


class MarkLedgers(Message, to="worker"):
    """Fence and put into limbo the ledgers of the payload (MARK_ITEM each). Reply: Done once it is durable."""


class ClearDirtyMarker(Message, to="worker"):
    """Losses of earlier incarnations are accounted for: the disk may advance its checkpoint. Reply: Done."""


class Done(Message):
    """The call was carried out."""


class SetReadOnlyReasons(Message, to="worker"):
    """Sets the read-only requests for this disk, of INTENTS in bookie/readonly.py. Reply: Done."""

    reasons: list[str]


class AttachFrontend(Message, to="worker"):
    """The one descriptor is the link to the front-end of this number, which has sent its hello; serve it. An earlier
    link of the same number ends. ``slot_wait_s``: time-out for a slot for responses, after which the link ends and
    FrontendDetached is sent; 0: none."""

    frontend: int = 0
    slot_wait_s: float = 0.0


class FrontendDetached(Message, to="supervisor"):
    """Unsolicited, worker to supervisor: this front-end took no responses for too long, and its link was closed."""

    frontend: int


class AttachRepair(Message, to="worker"):
    """The one descriptor is a channel to the repair worker; answer its calls."""


class GetStats(Message, to="worker frontend repair"):
    """Reply: Stats."""


class Stats(Message):
    values: dict[str, Any]


class GetLatency(Message, to="worker"):
    """Asks for the latency of adds since the repair worker, its only caller, asked last. Reply: Latency."""


class Latency(Message):
    """The time from the front-end's batch until the data that its adds wait for was durable, in microseconds."""

    adds: int
    p99_us: int


class Stop(Message, to="worker frontend repair"):
    """Finish the requests in flight, make them durable and exit. Reply: Stopped."""


class Stopped(Message):
    """``clean``: everything is durable, the dirty marker may be cleared. ``durable``: as in DiskStore."""

    clean: bool
    reason: str = ""
    durable: list[int] | None = None


class DiskFailed(Message, to="supervisor"):
    """Unsolicited, worker to supervisor: the disk failed. The next start must be treated as one after a host crash."""

    reason: str


# ---- repair worker to disk worker -------------------------------------------------------------------


class ListRuns(Message, to="worker"):
    """Lists a ledger's entries in the index from ``first`` on. Reply: Page of RANGE_ITEM."""

    ledger: int
    first: int = 0


class CheckEntries(Message, to="worker"):
    """Reads the entries of a range that are in the index and verifies their records. Reply: Page of the unreadable ones
    (RANGE_ITEM)."""

    ledger: int
    first: int
    last: int


class ClearLimbo(Message, to="worker"):
    """Makes the ledger's entries durable, then takes it out of limbo, durably. Reply: Done."""

    ledger: int


# ---- space (worker/disk_maintenance.py): repair worker and supervisor to disk worker ---------------------------


class ProbeDisk(Message, to="worker"):
    """Writes a small probe file on the disk and reads it back. Reply: Probed."""


class Probed(Message):
    """``problem``: the reason why the probe failed; empty if it succeeded."""

    problem: str = ""


class GetSpace(Message, to="worker"):
    """Reply: Space."""


class Space(Message):
    """The use of the disk's space, and the progress of scrub and compaction."""

    values: dict[str, Any]


class ExplainSegment(Message, to="worker"):
    """Asks why a segment is kept. Reply: Space."""

    segment: int


class ListDeleted(Message, to="worker"):
    """One page of deleted ledgers with an id > ``after``, in order. Reply: Page of DELETED_ITEM."""

    after: int = -1


class ListBytes(Message, to="worker"):
    """Lists the usage on the disk of ledgers with an id > ``after``, in order, without those in the trash. The reply to
    the first page (-1) may be empty with ``more`` set: the disk is still counting; ask again. Reply: Page of
    BYTES_ITEM.
    """

    after: int = -1


class ChangeLedgers(Message, to="worker"):
    """Changes the state of the ledgers of the payload (LEDGER_ID_ITEM each), durably. ``action``: 'trash' (``now_ms``:
    the time of deletion), 'restore', 'empty' (removes the entries of those in the trash) or 'forget' (those that are
    empty). A ledger whose state has changed meanwhile is left alone. Reply: Changed.
    """

    action: str
    now_ms: int = 0


class Changed(Message):
    ledgers: int


class ScanIndex(Message, to="worker"):
    """Continues the scan of the index, or starts one with ``begin``. It looks for entries in the regions of the payload
    (REGION_ITEM each), or in segments that do not exist. Reply: Surveyed."""

    begin: bool = False


class IndexScanned(Message):
    """The payload has the entries that were found and cannot be read (ENTRY_ITEM each)."""

    done: bool


class ListSegments(Message, to="worker"):
    """One page of sealed segments with an id > ``after``, in order, with the results of the last index scan. Reply:
    Page of SEGMENT_ITEM.
    """

    after: int = 0


class CompactSegment(Message, to="worker"):
    """Continues copying the live data out of a segment, or starts to with ``begin``. Reply: Compacted."""

    segment: int
    begin: bool = False


class Compacted(Message):
    """``wait``: nothing was done, as too many writes are pending. Payload, when ``done``: bad regions."""

    done: bool
    wait: bool = False
    read_bytes: int = 0
    entries: int = 0
    bytes: int = 0


class StoreAll(Message, to="worker"):
    """Takes a checkpoint that covers everything written before the call with ``begin``. Reply: Stored; repeat the call
    until it is ``done``."""

    begin: bool = False


class Stored(Message):
    done: bool


class SpendReserve(Message, to="worker"):
    """Releases the disk's reserve to the calling compaction. Reply: Stored; not ``done`` if there is no reserve."""


class RemoveSegment(Message, to="worker"):
    """Removes a segment that was copied, if a later index scan found nothing in it. Reply: Removed."""

    segment: int


class Removed(Message):
    """``why``: the reason why it was not removed; empty if it was."""

    why: str = ""
    bytes: int = 0


class ScrubSegment(Message, to="worker"):
    """Verifies some records of a segment from ``offset`` on. Reply: Scrubbed."""

    segment: int
    offset: int = 0


class Scrubbed(Message):
    """``offset``: where to continue. ``done``: the end is reached. ``regions``: the number of bad ones. Payload: these
    regions (REGION_ITEM each), then entries that the index does not name (ENTRY_ITEM each)."""

    offset: int
    done: bool
    read_bytes: int
    records: int
    regions: int


class RecordScrub(Message, to="worker"):
    """Records durably that the scrub has finished all segments before this one; 0: all there were. ``now_ms``: the
    present time. ``bad``: the unreadable regions of the last finished segment, (segment, start, end) each. Reply: Done.
    """

    segment: int
    now_ms: int
    bad: list[tuple[int, int, int]]


class RecordComparison(Message, to="worker"):
    """Records durably that in the present pass all ledgers before this one were compared with other bookies.

    Reply: Done.
    """

    ledger: int


class RecordCopies(Message, to="worker"):
    """Records durably that at ``now_ms`` every entry was here that the metadata credits this bookie with, as of the
    ``change`` of the metadata store; 0: the store counts none. Reply: Done.
    """

    now_ms: int
    change: int


# ---- supervisor to front-end ------------------------------------------------------------------------


class JoinFrontends(Message, to="frontend"):
    """It is one of ``count`` front-ends, with this ``number`` from 0 on; sent before OpenFrontend where there are
    several. The one descriptor is that of their shared counts (frontend/shared_counts.py). None of them assigns new
    ledgers to disks: each asks with ResolveLedgers."""

    number: int
    count: int


class OpenFrontend(Message, to="frontend"):
    """Start serving. The one descriptor is the bound socket; it starts listening once the disks in ``attached`` have
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


class SetAccessPolicy(Message, to="frontend"):
    """The access policy from now on (frontend/access/access_policy.py); sent before OpenFrontend and whenever it
    changes. The payload is JSON, with the secrets that the configuration refers to. No reply."""

    def __repr__(self) -> str:
        return "SetAccessPolicy(…)"


class AttachDisk(Message, to="frontend repair"):
    """The one descriptor is the link to the worker of this disk."""

    disk: str


class DiskUnavailable(Message, to="frontend"):
    """This disk is about to be marked: create no ledger until it has listed its ledgers again. Reply: Done."""

    disk: str


class NewLedgers(Message, to="frontend"):
    """``allowed``: clients may create ledgers from now on; initially they may. Fences, recovery adds and repair always
    may.

    ``free``: bytes for new ledgers per disk; new ledgers are distributed in proportion. ``closed``: disks that get no
    new ledgers. Reply to a call: Done.
    """

    allowed: bool
    free: dict[str, int] = {}  # noqa: RUF012 - never changed
    closed: list[str] = []  # noqa: RUF012


class Listening(Message, to="supervisor"):
    """Unsolicited, front-end to supervisor: the ledgers of the attached disks are known and the port is open."""


class ResolveLedgers(Message, to="supervisor"):
    """Unsolicited, one of several front-ends to supervisor: on which disk are these ledgers? LEDGER_ITEM each; the flag
    is 1 if the ledger is to be assigned to a disk where it has none. LedgersResolved follows, with this ``batch``."""

    batch: int


class LedgersResolved(Message, to="frontend"):
    """The disks of ledgers, PLACEMENT_ITEM each: an index into ``disks``, or a value of ledger_queries.Answer. Answers
    a ``batch`` of queries, or unasked (0) when another front-end had a ledger assigned. A ledger that migrates is left
    out: PlaceLedger follows."""

    batch: int
    disks: list[str]


class CheckLedger(Message, to="supervisor"):
    """Unsolicited, front-end to supervisor: look this ledger up in the metadata store. LedgerChecked follows."""

    ledger: int


class LedgerChecked(Message, to="frontend"):
    """``finding``: a value of vouching.Finding. The payload is the ledger's key; empty if it has no password."""

    ledger: int
    finding: str


# ---- supervisor to repair worker --------------------------------------------------------------------


class OpenRepair(Message, to="repair"):
    """The environment and the rate limits of this bookie's jobs; 0: no limit. ``client``: options of the client that
    reaches other bookies, in addition to those for racks. ``config``: the path of the bookie's configuration, for the
    commands that jobs suggest. Descriptors follow by AttachDisk."""

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
    config: str = ""
    client: dict[str, Any] = {}  # noqa: RUF012 - never changed


# ---- quotas: repair worker to supervisor (supervisor/quotas.py) ----------------------------------------


class OverQuota(Message, to="supervisor frontend"):
    """A page of the ledgers whose owner is over its quota, LEDGER_ID_ITEM each; the supervisor forwards it to the
    front-end. The previous set applies until the last page has arrived."""

    more: bool = False


OVER_QUOTA_PAGE = 8_192
"""Ledgers per OverQuota page."""


class QuotaUse(Message, to="supervisor"):
    """The usage of owners: (owner, bytes, quota in bytes, True if exceeded) each. ``others``: owners that are left out
    for brevity. ``looked_ms``: the time of the measurement. ``problem``: why it failed; the previous figures then
    stand.
    """

    owners: list[list[Any]] = []  # noqa: RUF012 - never changed
    unlisted_owners: int = 0
    checked_ms: int = 0
    problem: str = ""


# ---- a ledger moves from one disk to another (worker/ledger_migration.py, supervisor/disks/ledger_


class GetLedger(Message, to="worker"):
    """To a disk worker. Reply: LedgerInfo."""

    ledger: int


class LedgerInfo(Message):
    """A ledger on a disk. ``state``: records.encode_state in hex; ``payload``: its explicit LAC packet, or empty."""

    known: bool
    limbo: bool = False
    state: str = ""


EVERYTHING = [0, 0]
"""The log position before the first record."""


class StartImport(Message, to="worker"):
    """To the target's worker: start a copy of a ledger, which is not valid until it is committed. An earlier
    unfinished copy is started anew. ``state`` and ``payload`` as in LedgerInfo. Reply: Done.
    """

    ledger: int
    state: str


class ReadLedger(Message, to="worker"):
    """To the source's worker: write the next entries of a ledger into the file of the one descriptor, each after its
    length (u32). ``since``: starts a pass over entries at or behind this log position, which is EVERYTHING or where an
    earlier pass with this worker began; None continues the present pass. Reply: EntriesRead.
    """

    ledger: int
    since: list[int] | None = None


class EntriesRead(Message):
    """``size``: bytes in the file. ``more``: the pass is not finished. ``bad``: entries that exist but cannot be read,
    and are left out. ``began``: the end of the log when the pass began, for ``since`` of the next one."""

    entries: int
    size: int
    more: bool
    bad: list[int]
    began: list[int]


class ImportEntries(Message, to="worker"):
    """To the target's worker: store the entries in the first ``size`` bytes of the one descriptor's file. Refused if
    no import of the ledger is in progress. Reply: EntriesImported.
    """

    ledger: int
    size: int


class EntriesImported(Message):
    """``crowded``: nothing was stored because the disk is under backpressure; retry."""

    crowded: bool


class SealExport(Message, to="worker"):
    """To the source's worker: every request for the ledger is done and answered; record durably that it is about to
    migrate to the disk ``target``. Nothing changes the ledger from here on. Reply: LedgerInfo.
    """

    ledger: int
    target: str


class CommitImport(Message, to="worker"):
    """To the target's worker. With ``commit``: the copy is the whole ledger, in this state; make it durable, and the
    ledger is on this disk from then on; refused if no import is in progress. Without: discard the copy, unless the
    ledger is on this disk already. ``state`` and ``payload`` as in LedgerInfo. Reply: Arrived.
    """

    ledger: int
    commit: bool
    state: str = ""


class Arrived(Message):
    """``assigned``: the ledger is assigned to this disk."""

    assigned: bool


class EndExport(Message, to="worker"):
    """To the source's worker: if the ledger has ``migrated``, forget it durably; else it stays. Does nothing if the
    ledger is not about to leave. Reply: Done."""

    ledger: int
    migrated: bool


class ListMigrations(Message, to="worker"):
    """To a disk worker. Reply: MigrationList."""


class MigrationList(Message):
    """``arriving``: ledgers that are being copied to the disk. ``leaving``: for each ledger that is about to leave, its
    id as text, the target disk."""

    arriving: list[int]
    leaving: dict[str, str]


class PauseLedger(Message, to="frontend"):
    """To the front-end: hand all requests for the ledger to its worker, then pause it: later requests wait. Reply:
    Done."""

    ledger: int


class PlaceLedger(Message, to="frontend"):
    """To the front-end: the ledger is on this disk; requests that wait for it resume. Reply: Done."""

    ledger: int
    disk: str


class MoveLedger(Message, to="supervisor"):
    """Repair worker to supervisor: all of the ledger except what was written ``since`` (as in ReadLedger) is on
    ``target`` already. Copy the rest and commit the migration. Reply: Moved."""

    ledger: int
    source: str
    target: str
    since: list[int]


class FindDisk(Message, to="supervisor"):
    """Repair worker to supervisor: asks for the target disk of the next ledger that leaves this disk. Reply:
    DiskSpaceReply.
    """

    disk: str


class DiskSpaceReply(Message):
    """``disk``: the one with the most space; empty if there is none, with the reason in ``why``."""

    disk: str
    why: str = ""


class Moved(Message):
    """``moved``: the migration is done, or the ledger does not exist any more. Else ``why`` has the reason, and the
    ledger is still on the source."""

    moved: bool
    why: str = ""


# ---- adding and removing disks ----------------------------------------------------------------------


class DiskJoins(Message, to="frontend"):
    """Supervisor to front-end: a new disk, which is attached later. ``replaces``: the disk that it replaces, under
    which its ledgers are known. Reply: Done."""

    disk: str
    path: str
    replaces: str = ""


class DiskLeaves(Message, to="frontend"):
    """Supervisor to front-end: this disk, which holds no ledgers, is removed. Reply: Done."""

    disk: str


class Draining(Message, to="supervisor"):
    """Repair worker to supervisor: starts or, without ``wanted``, ends the draining of a disk, which then migrates its
    ledgers away and accepts no new ones. Refused with the reason if it is not possible. Reply: Done, once it is so."""

    disk: str
    wanted: bool


class Retiring(Message, to="supervisor"):
    """Repair worker to supervisor: with ``wanted``, the bookie accepts no more entries because it is being
    decommissioned. Reply: Done, once it is so."""

    wanted: bool


# ---- jobs: supervisor to repair worker and back -----------------------------------------------------


class StartJob(Message, to="repair"):
    """Runs a job (bkbox/jobs). ``id`` is new, or its earlier run ended with its process. No reply."""

    id: int
    kind: str
    arguments: dict[str, str]


class ControlJob(Message, to="repair"):
    """``action``: a JobAction. ``bytes_per_second`` goes with 'rate'; with ``id`` 0 it applies to all jobs together. No
    reply; ignored if the job has ended."""

    id: int
    action: str
    bytes_per_second: int = 0


class JobReport(Message, to="supervisor"):
    """Unsolicited, repair worker to supervisor: ``id`` and those fields of a Job that its run determines."""

    values: dict[str, Any]


# ---- supervisor to workers and front-end: a changed configuration -----------------------------------


class Settings(Message, to="worker frontend repair"):
    """All configuration keys that can change at run time, with their present values. No reply."""

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
