"""The parts of the status document (status.py). Sizes are bytes, ``…_s`` seconds, ``…_us`` microseconds, ``…_ms``
wall-clock milliseconds since 1970; None is not known.

A field that was added under the present schema number has a default, so that documents of older bookies, and
recordings, with that number are read, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bkbox.jobs.job import Blocker, Job, JobKind, JobState

BookieState = Literal["starting", "running", "stopping", "stopped", "refused"]
CrashClass = Literal[
    "clean",
    "process crash",
    "host crash",
    "disk lost",
    "disk replaced",
    "foreign disk",
    "unknown",
]
DiskState = Literal["in service", "out of service", "failed"]
Role = Literal["supervisor", "frontend", "worker", "repair"]


@dataclass(frozen=True, slots=True)
class Boot:
    """Progress of the start, and what made it go that way; ``eta_s``: seconds that it will still take."""

    phase: str
    reasons: tuple[str, ...] = ()
    eta_s: float | None = None


@dataclass(frozen=True, slots=True)
class Replay:
    """Entries that the last start read again from a disk's logs; ``damaged`` counts ranges that could not
    be read.
    """

    records: int = 0
    entries: int = 0
    bytes: int = 0
    cut_bytes: int = 0
    damaged: int = 0


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage on the way of the adds of a disk (queue, append, index, fsync, reply): how many adds there were and how
    long it took them, in microseconds, since the disk's worker began; ``recent_…``: within the last minute or so.
    """

    stage: str
    count: int
    p50_us: int
    p99_us: int
    p999_us: int
    max_us: int
    total_us: int = 0
    recent_count: int = 0
    recent_p50_us: int = 0
    recent_p99_us: int = 0


@dataclass(frozen=True, slots=True)
class Latency:
    """An operation of a disk (add, read) from the batch of its request in the front-end to its response, in
    microseconds: how many there were and how long they took, since the disk's worker began; ``recent_…``: within the
    last minute or so. A read is of an entry; fencing reads and long polls are not in it.
    """

    operation: str
    count: int
    p50_us: int
    p99_us: int
    p999_us: int
    max_us: int
    total_us: int = 0
    recent_count: int = 0
    recent_p50_us: int = 0
    recent_p99_us: int = 0


@dataclass(frozen=True, slots=True)
class Counts:
    """Counters of a disk's worker since it began. ``bytes``: of records written to the log; ``unknown``: reads
    whose response was 'unknown', as for an entry of a ledger in limbo."""

    adds: int = 0
    bytes: int = 0
    reads: int = 0
    unknown: int = 0


@dataclass(frozen=True, slots=True)
class Rates:
    """The same per second, recently."""

    adds: float = 0.0
    bytes: float = 0.0
    reads: float = 0.0
    unknown: float = 0.0


@dataclass(frozen=True, slots=True)
class Device:
    """The device under a disk's folder, and the kernel's counters of it since the host began: ``busy_ms``: time with
    anything under way. ``errors`` of the device (as SCSI counts them) and of the file system (as ext4 does), where
    they can be read.
    """

    name: str
    filesystem: str
    reads: int | None = None
    writes: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None
    busy_ms: int | None = None
    device_errors: int | None = None
    filesystem_errors: int | None = None


@dataclass(frozen=True, slots=True)
class SpaceUsage:
    """The space of a disk by use, as `bkbox gc status` shows it. ``reclaimable_bytes``: garbage in sealed segments by
    the last scan of the index; ``quarantined``: segments with parts that cannot be read; ``scrub_segment``: the
    position of the running scrub, 0: none runs; ``copies_checked_ms``: see Copies; 0 ms: never.
    """

    segments: int = 0
    segment_bytes: int = 0
    reclaimable_bytes: int | None = None
    trash_ledgers: int = 0
    emptied_ledgers: int = 0
    quarantined: int = 0
    reserve_bytes: int = 0
    reserve_bytes_max: int = 0
    scrub_segment: int = 0
    scrub_began_ms: int = 0
    scrub_completed_ms: int = 0
    copies_checked_ms: int = 0


@dataclass(frozen=True, slots=True)
class Process:
    """One process of the bookie; ``restarts`` since the supervisor started. ``disk``: uuid of the disk that a worker
    has. ``memory_bytes``: resident, with what it shares with the others; ``cpu_percent``: of one processor, since the
    status was last asked for, and over a second at least. ``stalled_s``: for how many seconds it has made no progress,
    0 while it makes some; ``stall``: what it does instead. A stalled process is killed and started again after a while.
    ``kernel``: the implementation of the inner loops that it runs, "" until it said so.
    """

    role: Role
    name: str
    pid: int
    restarts: int
    running: bool
    disk: str = ""
    memory_bytes: int | None = None
    cpu_s: float | None = None
    cpu_percent: float | None = None
    threads: int | None = None
    open_files: int | None = None
    started_ms: int | None = None
    stalled_s: float = 0.0
    stall: str = ""
    kernel: str = ""


@dataclass(frozen=True, slots=True)
class DiskStatus:
    """One data disk: what the last start found (``crash_class`` and why) and how it is now.

    ``disk`` is the disk's uuid, ``read_only`` the named reasons for which it takes no entries
    (empty: it takes them). ``total_bytes`` is 0 where no worker is there to tell.
    """

    path: str
    disk: str
    crash_class: CrashClass
    reason: str
    state: DiskState
    ledgers: int
    limbo_ledgers: int
    free_bytes: int
    total_bytes: int
    read_only: tuple[str, ...] = ()
    replay: Replay = Replay()
    stages: tuple[Stage, ...] = ()
    draining: bool = False
    counts: Counts = Counts()
    rates: Rates = Rates()
    device: Device | None = None
    space: SpaceUsage | None = None
    worker: Process | None = None
    operations: tuple[Latency, ...] = ()


@dataclass(frozen=True, slots=True)
class Limbo:
    """Repair: ``ledgers`` are in limbo now; all else is what the limbo job says that runs, or else of the
    last one since the start. ``eta_s`` is None where nothing can be said. ``job``: its id. ``blockers`` are the first
    hundred of ``blocked`` ledgers.
    """

    ledgers: int = 0
    done: int = 0
    entries_checked: int = 0
    entries_missing: int = 0
    entries_copied: int = 0
    bytes_copied: int = 0
    eta_s: float | None = None
    blockers: tuple[Blocker, ...] = ()
    job: int | None = None
    blocked: int = 0

    @property
    def stuck(self) -> int:
        """Ledgers that cannot be repaired without help."""
        return max(self.blocked, len(self.blockers))


@dataclass(frozen=True, slots=True)
class Copies:
    """Entries that the metadata credits this bookie with, compared with those that it has, after every absence.
    ``short``: entries that are missing here, as far as the last check has compared; None: there was no check.
    ``mended``: entries that this check has copied here. ``checking``: it has not compared everything yet.
    ``checked_ms``: when a check last found nothing short, 0: never. ``job``: the check.
    """

    short: int | None = None
    mended: int = 0
    checking: bool = False
    checked_ms: int = 0
    job: int | None = None


@dataclass(frozen=True, slots=True)
class EndedLedger:
    """A ledger that was ended with loss accepted, and its records of loss (`bkbox ledger show`), shortened."""

    ledger: int
    records: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Losses:
    """Ledgers of the cluster that were ended with loss accepted, as of ``checked_ms``: how many, None: not known; and
    the last hundred of them. ``entries``: how many of their entries are known to be lost, None: not all records were
    read yet. ``problem``: why nothing was learnt since."""

    ledgers: int | None = None
    listed: tuple[EndedLedger, ...] = ()
    problem: str = ""
    checked_ms: int = 0
    entries: int | None = None


@dataclass(frozen=True, slots=True)
class Jobs:
    """Long work: the jobs that have not ended, and how many of those that are remembered came to which end.
    ``bytes_per_second``: the limit of all together that an operator has set, 0 for none; None: as configured."""

    active: tuple[Job, ...] = ()
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    bytes_per_second: int | None = None


@dataclass(frozen=True, slots=True)
class ScheduledJob:
    """A kind of job that the bookie starts on a schedule: collection, compaction, scrub, and those of autorecovery.
    ``every_s``: from the end of one run to the start of the next, None: never on a schedule; ``job``: the last run,
    ``state`` its state, ``ended_ms`` when it ended.
    """

    kind: JobKind
    every_s: float | None
    job: int | None = None
    state: JobState | None = None
    ended_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CookieField:
    """A field of the cookie in one place, the metadata store or a disk, and what the configuration makes of it."""

    where: str
    field: str
    expected: str
    found: str
    same: bool


@dataclass(frozen=True, slots=True)
class Cookies:
    """The cookies as they were compared last, with the configuration file as it was then. ``ok``: the bookie would
    start with them; ``advice`` where it would not; ``problem``: why they could not be compared since."""

    ok: bool | None = None
    fields: tuple[CookieField, ...] = ()
    advice: str = ""
    problem: str = ""
    checked_ms: int = 0


@dataclass(frozen=True, slots=True)
class Metadata:
    """The session with the metadata store. ``unregistered_s``: for how long the store has not known of this bookie,
    which serves on meanwhile."""

    uri: str = ""
    registered: bool = False
    unregistered_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Autorecovery:
    """``running_here``: whether this bookie takes part; all else is of the cluster as of ``checked_ms``: whether it is
    on, the bookie that is the auditor, and ledgers that lack replicas, which are counted up to ten thousand."""

    running_here: bool = False
    enabled: bool | None = None
    auditor: str | None = None
    under_replicated: int | None = None
    writable_bookies: int | None = None
    read_only_bookies: int | None = None
    problem: str = ""
    checked_ms: int = 0


@dataclass(frozen=True, slots=True)
class Clients:
    """All front-ends together: ``buffered_bytes`` of requests and responses; ``refused``: requests refused because too
    much was buffered; ``rejected``: connections over a connection limit; ``handshaking``: connections not authenticated
    yet; ``unauthorised``: requests and connections refused for lack of permission."""

    connections: int = 0
    buffered_bytes: int = 0
    refused: int = 0
    rejected: int = 0
    handshaking: int = 0
    unauthorised: int = 0


@dataclass(frozen=True, slots=True)
class Quota:
    """Bytes of an owner's ledgers on the disks of this bookie, and the owner's quota. ``exceeded``: adds to them are
    refused."""

    owner: str
    bytes: int
    bytes_max: int
    exceeded: bool


@dataclass(frozen=True, slots=True)
class Quotas:
    """Owners that have a quota, the fullest first; ``unlisted_owners`` more are left out. ``checked_ms``: when their
    usage was measured, 0: not yet; ``problem``: why it could not be measured since."""

    owners: tuple[Quota, ...] = ()
    unlisted_owners: int = 0
    checked_ms: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class StatusWarning:
    """Something the operator ought to know, and the command that mends it ("" where there is none)."""

    text: str
    command: str = ""
