"""What the supervisor, and the repair worker, ask of a disk's worker: start, state of ledgers, entries, health."""

from __future__ import annotations

from bkbox.ipc.messages.message import Message


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
    """The replay's result (storage/disk/replay.py, ReplayReport). ``rebuilt``: the reason why the index was rebuilt;
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


class ListLedgers(Message, to="worker"):
    """One page of ledgers with an id > ``after``, in order. Reply: Page of LEDGER_ITEM."""

    after: int = -1
    limbo_only: bool = False


class MarkLedgers(Message, to="worker"):
    """Fence and put into limbo the ledgers of the payload (MARK_ITEM each). Reply: Done once it is durable."""


class ClearDirtyMarker(Message, to="worker"):
    """Losses of earlier incarnations are accounted for: the disk may advance its checkpoint. Reply: Done."""


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


class GetLatency(Message, to="worker"):
    """Asks for the latency of adds since the repair worker, its only caller, asked last. Reply: Latency."""


class Latency(Message):
    """The time from the front-end's batch until the data that its adds wait for was durable, in microseconds."""

    adds: int
    p99_us: int


class DiskFailed(Message, to="supervisor"):
    """Unsolicited, worker to supervisor: the disk failed. The next start must be treated as one after a host crash."""

    reason: str


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


class ProbeDisk(Message, to="worker"):
    """Writes a small probe file on the disk and reads it back. Reply: Probed."""


class Probed(Message):
    """``problem``: the reason why the probe failed; empty if it succeeded."""

    problem: str = ""
