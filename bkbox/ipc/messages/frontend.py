"""Between the supervisor and a front-end: its start, the policy of access, disks, and where ledgers are."""

from __future__ import annotations

from bkbox.ipc.messages.message import Message


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


class DiskServed(Message, to="supervisor"):
    """Unsolicited, front-end to supervisor: the ledgers of this disk are known, and requests go to it from now on."""

    disk: str


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
    """``finding``: a value of ledger_verification.Finding. The payload is the ledger's key; empty if it has no
    password.
    """

    ledger: int
    finding: str


class DiskJoins(Message, to="frontend"):
    """Supervisor to front-end: a new disk, which is attached later. ``replaces``: the disk that it replaces, under
    which its ledgers are known. Reply: Done."""

    disk: str
    path: str
    replaces: str = ""


class DiskLeaves(Message, to="frontend"):
    """Supervisor to front-end: this disk, which holds no ledgers, is removed. Reply: Done."""

    disk: str
