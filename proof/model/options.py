"""Options of a search: the size of the model, its faults, the rules of the protocol that are in force.

Names D3 to D9 are those of docs/verification.md, "Where the published model is off". ``Options()`` is the corrected
model with two bookies, two clients, one entry and one crash; ``as_published`` takes every correction back.
"""

from __future__ import annotations

from enum import Enum

from bkbox.base.values import frozen_struct
from bkbox.errors import QuorumSizeError


class Status(Enum):
    """State of the ledger in the metadata store. Values are text for output."""

    NONE = "none"
    OPEN = "open"
    RECOVERING = "recovering"
    CLOSED = "closed"


class Marks(Enum):
    """Ledgers that a boot after an unclean shutdown marks (fences, puts into limbo)."""

    ALL = "all"
    NOT_CLOSED = "not-closed"  # all that the metadata store does not have as closed
    NAMED = "named"  # bkbox's own rule: bkbox/protocol/boot.py, mark_for


class Clearing(Enum):
    """The earliest moment at which limbo may be cleared."""

    NEVER = "never"
    ANY_TIME = "any-time"  # before the ledger is closed as well
    AFTER_CLOSE = "after-close"


class Loss(Enum):
    """Data lost in a crash."""

    BOOKIE = "bookie"  # all that the bookie has of the ledger
    DISK = "disk"  # one of the two disks of the bookie; the ledger lies on one
    PROCESS = "process"  # the requests in flight to the bookie, and nothing else
    DEVICE = "device"  # entries that were not synced: the device was away, the kernel stayed up; a fence is synced


WINDOWS = (Status.OPEN, Status.RECOVERING, Status.CLOSED)


@frozen_struct
class Corrections:
    """Corrections of the published model, and ``first_holder``: a read succeeds with one bookie that has the entry."""

    fragments_at_close: bool = True  # D3
    timeouts_of_the_read: bool = True  # D4
    lac_counts: bool = True  # D5: entries up to the LAC that a recovery starts from are confirmed
    early_reads: bool = False  # D6: a read ends at the first holder, or as soon as enough say no
    per_client: bool = False  # D7: timeouts and the order of adds are those of one client
    failed_reads: bool = False  # D8: a read that ends neither way fails its recovery
    responses_have_ids: bool = True  # D9: also those without an entry
    first_holder: bool = True


AS_PUBLISHED = Corrections(
    fragments_at_close=False,
    timeouts_of_the_read=False,
    lac_counts=False,
    responses_have_ids=False,
    first_holder=False,
)


@frozen_struct
class Options:
    """One configuration. ``checked`` raises QuorumSizeError if the sizes do not fit."""

    bookies: int = 2
    clients: int = 2
    write_quorum: int = 2
    ack_quorum: int = 1
    sends: int = 1
    crashes: int = 1
    windows: tuple[Status, ...] = WINDOWS
    fence: bool = True  # an unclean boot fences the ledger
    limbo: bool = True  # an unclean boot puts the ledger into limbo
    marks: Marks = Marks.ALL
    unnoticed: bool = False  # an unclean shutdown may be taken for a clean one
    durable_fence: bool = False  # a fence survives a crash
    clearing: Clearing = Clearing.NEVER
    loss: Loss = Loss.BOOKIE
    mounts: bool = True  # a boot tells a device that was away from one that stayed
    copies: bool = False  # a closed ledger is copied to a bookie before the metadata names it
    records: bool = (
        True  # a boot sets limbo where a copy is recorded that the metadata does not name
    )
    message_loss: bool = True
    recovery_reads_fence: bool = True
    lac_floor: bool = True  # a recovery starts no earlier than the last fragment
    corrections: Corrections = Corrections()

    def checked(self) -> Options:
        """Returns itself. Raises QuorumSizeError if the sizes do not fit."""
        if not 1 <= self.ack_quorum <= self.write_quorum <= self.bookies:
            raise QuorumSizeError(
                f"1 <= ack quorum <= write quorum <= bookies has to hold, and ack quorum is {self.ack_quorum}, "
                f"write quorum {self.write_quorum}, bookies {self.bookies}"
            )
        return self

    @property
    def negatives(self) -> int:
        """The number of plain negatives that end a ledger: no ack quorum is left outside of them."""
        return self.write_quorum - self.ack_quorum + 1
