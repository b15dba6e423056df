"""The list of a log's ledgers, and its changes. Pure; it is safe because it is replaced by compare-and-set.

- Ledgers are in the order in which they were written. Their ids ascend, so positions sort as records do.
- A writer that opens the log starts a new *epoch* of it. A writer that finds another epoch than its own is no longer
  the writer.
- Only the last two ledgers may be open: a ledger is added only when the one before the last is closed. So it is
  enough to fence two.
- A ledger that was deleted by hand is *lost* once an operator has taken it out; its positions never come again.
- Truncation takes ledgers off the front, never one of the last two. A ledger taken off is *doomed* until it is
  deleted, so an interrupted truncation leaves nothing behind.

As stored: JSON with the fields of LedgerList and ``format`` 1, ``start`` as text; ``lost`` only if it is not empty.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from bkbox.base.ids import EntryId, LedgerId
from bkbox.base.text import error_text, quoted
from bkbox.client.log.position import BEGINNING, Position
from bkbox.errors import BugError, EncodingError, InvalidIdError

FORMAT = 1
MAY_BE_OPEN = 2
"""The number of ledgers at the end of a list that may be open."""


@dataclass(frozen=True, slots=True)
class LedgerList:
    """``instance``: the cluster of the ledgers. ``start``: the log holds nothing before it any more. ``deleted``: the
    log no longer exists. ``lost``: ledgers between the remaining ones, with records that can no longer be read.
    """

    instance: str
    epoch: int = 0
    ledgers: tuple[LedgerId, ...] = ()
    start: Position = BEGINNING
    doomed: tuple[LedgerId, ...] = ()
    deleted: bool = False
    lost: tuple[LedgerId, ...] = ()

    @property
    def may_be_open(self) -> tuple[LedgerId, ...]:
        """The ledgers that a new writer has to fence."""
        return self.ledgers[-MAY_BE_OPEN:]

    def after(self, ledger: LedgerId) -> LedgerId | None:
        """The first ledger with a larger id."""
        return next((each for each in self.ledgers if each > ledger), None)

    def accepts(self, ledger: LedgerId) -> bool:
        """True if this ledger may be added."""
        last = max((*self.ledgers[-1:], *self.lost[-1:]), default=-1)
        return ledger >= self.start.ledger_id and ledger > last

    def opened(self, ledger: LedgerId) -> LedgerList:
        """The list after a writer has opened the log with this ledger: a new epoch."""
        return replace(self.rolled(ledger), epoch=self.epoch + 1, deleted=False)

    def rolled(self, ledger: LedgerId) -> LedgerList:
        """The list after its writer has moved on to another ledger."""
        if not self.accepts(ledger):
            raise BugError(f"ledger {ledger} is added to a log behind {self.ledgers[-1]}")
        return replace(self, ledgers=(*self.ledgers, ledger))

    def truncated(self, before: Position) -> LedgerList:
        """Without the records before this position."""
        start = max(self.start, before)
        closed = self.ledgers[:-MAY_BE_OPEN]
        dropped = tuple(ledger for ledger in closed if ledger < start.ledger_id)
        left = self.ledgers[len(dropped) :]
        lost = tuple(ledger for ledger in self.lost if ledger >= start.ledger_id)
        return replace(self, ledgers=left, start=start, doomed=(*self.doomed, *dropped), lost=lost)

    def without(self, ledger: LedgerId) -> LedgerList:
        """The list after an operator has taken out a ledger that no longer exists. If a writer may be writing that
        ledger, it finds another epoch.
        """
        left = tuple(each for each in self.ledgers if each != ledger)
        epoch = self.epoch + (ledger in self.may_be_open)
        return replace(self, ledgers=left, epoch=epoch, lost=tuple(sorted((*self.lost, ledger))))

    def emptied(self) -> LedgerList:
        """The list of a log that was deleted as a whole; a remaining writer finds another epoch."""
        last = max((*self.ledgers[-1:], *self.lost[-1:]), default=-1)
        start = max(self.start, Position(LedgerId(last + 1), EntryId(0)))
        doomed = (*self.doomed, *self.ledgers)
        return LedgerList(self.instance, self.epoch + 1, start=start, doomed=doomed, deleted=True)

    def buried(self, ledgers: tuple[LedgerId, ...]) -> LedgerList:
        """The list after these ledgers were deleted."""
        return replace(self, doomed=tuple(each for each in self.doomed if each not in ledgers))


def encode(found: LedgerList) -> bytes:
    fields: dict[str, object] = {
        "format": FORMAT,
        "instance": found.instance,
        "epoch": found.epoch,
        "ledgers": found.ledgers,
        "start": str(found.start),
        "doomed": found.doomed,
        "deleted": found.deleted,
    }
    if found.lost:
        fields["lost"] = found.lost
    return json.dumps(fields, separators=(",", ":")).encode()


def decode(data: bytes) -> LedgerList:
    """Decode a stored list. Raises EncodingError."""
    try:
        fields = json.loads(data)
        if fields["format"] != FORMAT:
            raise EncodingError(
                f"a list of a log has format {quoted(fields['format'])}; this version of bkbox reads {FORMAT}"
            )
        found = LedgerList(
            str(fields["instance"]),
            int(fields["epoch"]),
            tuple(LedgerId(int(each)) for each in fields["ledgers"]),
            Position.parse(fields["start"]),
            tuple(LedgerId(int(each)) for each in fields["doomed"]),
            bool(fields["deleted"]),
            tuple(LedgerId(int(each)) for each in fields.get("lost", ())),
        )
    except (ValueError, TypeError, KeyError, InvalidIdError) as error:
        raise EncodingError(f"a list of a log cannot be read: {error_text(error)}") from None
    if list(found.ledgers) != sorted(set(found.ledgers)):
        raise EncodingError("the ledgers in a list of a log do not ascend")
    return found
