"""A ledger moves from one disk to another: between the supervisor, which leads (supervisor/disks/ledger_migration.py),
the workers of both disks, the front-end and the repair worker, which copies in advance.
"""

from __future__ import annotations

from bkbox.ipc.messages.message import Message


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
