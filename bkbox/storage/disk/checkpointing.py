"""The checkpoints of one disk: when one is due, its position, and its three steps.

1. On the disk's thread a footer is written and the index frozen.
2. On any thread the log is synced, the frozen layer stored, and the file replaced.
3. On the disk's thread the frozen layer is dropped.

A checkpoint that failed between steps is begun again with the layer that it had frozen.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bkbox.base.values import frozen_struct, replaced, struct
from bkbox.errors import DamagedError, DiskError, DiskFullError
from bkbox.storage.disk.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from bkbox.storage.entries.entry_log import EntryLog
from bkbox.storage.files import Files
from bkbox.storage.index.index import LedgerIndex
from bkbox.storage.index.stored_index import Stamp
from bkbox.storage.log.journal import Journal
from bkbox.storage.log.segment import SEGMENT_HEADER_BYTES
from bkbox.storage.log.segmented_log import LogSync

_CHECK_BYTES = 64 << 10


@frozen_struct
class Sync:
    """A sync that was begun; ``size``: bytes appended since the one before."""

    size: int
    of_log: LogSync

    @property
    def error(self) -> DiskError | None:
        """Why it failed, once it has run."""
        return self.of_log.error

    def run(self) -> None:
        """Sync; on any thread, once."""
        self.of_log.run()

    def fail(self, error: DiskError) -> None:
        """Have it fail without a run, since one before it did."""
        self.of_log.error = error


@struct
class PendingCheckpoint:
    """A checkpoint that was begun."""

    sync: Sync | None
    of_log: LogSync | None
    _write_frozen: Callable[[Checkpoint, Callable[[], None]], None]
    checkpoint: Checkpoint
    error: DiskError | None = None

    def run(self, pause: Callable[[], None] = lambda: None) -> None:
        """Write the checkpoint; on any thread, once, after ``sync``. ``end_checkpoint`` raises a failure. ``pause``:
        called now and then; may wait."""
        try:
            if self.of_log is not None:
                self.of_log.run()
                if self.of_log.error is not None:
                    return
            self._write_frozen(self.checkpoint, pause)
        except DiskError as error:
            self.error = error


class Checkpoints:
    """The state of a disk's checkpoints.

    ``last``: the one in the file. ``blocked``: none may be taken before the caller has dealt with the data that a
    replay found missing. ``lacks_space``: the last one that was begun found no space.
    ``space_failures``: how many have found none since the start.
    """

    def __init__(self, files: Files, disk: Path, log: EntryLog, every_bytes: int) -> None:
        self._files = files
        self._disk = disk
        self._log = log
        self._every_bytes = every_bytes
        self._since = self._next_check = 0
        self.last = self._frozen_at = Checkpoint(0, 1, SEGMENT_HEADER_BYTES, 0, None)
        self.blocked = False
        self.lacks_space = False
        self.space_failures = 0

    def read(self, journal: Journal | None) -> tuple[Checkpoint | None, int | None]:
        """The checkpoint, None if it is lost, and the first journal segment to replay, None if there is none."""
        try:
            found = read_checkpoint(self._files, self._disk)
        except DamagedError:
            found = None
        if found is not None:
            self.last = found
            return found, found.journal
        segments = journal.segments() if journal is not None else []
        return None, min(segments, default=None)

    def count_from(self, number: int) -> None:
        """The checkpoint was lost: give the next one a higher number than any before, as recorded elsewhere."""
        self.last = replaced(self.last, number=max(self.last.number, number))

    # ---- when -------------------------------------------------------------------------------

    def wrote(self, size: int) -> None:
        """Count ``size`` bytes that were appended."""
        self._since += size

    def is_due(self, index: LedgerIndex) -> bool:
        """True if enough was written since the last checkpoint."""
        if self.blocked or self._since < self._next_check:
            return False
        # The memory of the index is checked only now and then.
        self._next_check = self._since + _CHECK_BYTES
        return self._since >= self._every_bytes or index.is_full

    def is_half_due(self, index: LedgerIndex) -> bool:
        """True if half of what makes a checkpoint due was written. On any thread."""
        return 2 * self._since >= self._every_bytes or index.is_half_full

    def failed(self, error: DiskError) -> None:
        """Records a checkpoint that failed. It is due again only after another append: an earlier attempt would fail
        likewise."""
        self.lacks_space = isinstance(error, DiskFullError)
        self.space_failures += self.lacks_space
        self._since = max(self._since, self._every_bytes)
        self._next_check = self._since + 1

    def make_due(self) -> None:
        """Make a checkpoint due at the next check."""
        self._since = max(self._since, self._every_bytes)
        self._next_check = 0

    # ---- taking one -------------------------------------------------------------------------

    def freeze(self, index: LedgerIndex, journal: Journal | None) -> Checkpoint:
        """Freeze the index. The returned checkpoint covers everything appended so far, unless an earlier one was not
        completed. ``journal``: that of this start. DiskError.
        """
        if self.lacks_space:
            index.renew()
            self.lacks_space = False
        if not index.is_frozen:
            self._log.write_footer()
            if journal is not None:
                journal.next_segment()
            index.freeze()  # last: the next attempt writes this frozen layer
            self._frozen_at = self.here(None if journal is None else journal.segment)
            self._since = self._next_check = 0
        number = self.last.number + 1
        return replaced(self._frozen_at, number=number, index=number)

    def write_frozen(
        self, index: LedgerIndex, checkpoint: Checkpoint, pause: Callable[[], None]
    ) -> None:
        """Store the frozen layer, on any thread; the log is durable up to the checkpoint. ``pause``: called now and
        then. DiskError."""
        stamp = Stamp(checkpoint.number, checkpoint.segment, checkpoint.offset)
        index.write_frozen(stamp, pause)
        write_checkpoint(self._files, self._disk, checkpoint)

    def completed(self, checkpoint: Checkpoint) -> None:
        """Records that the checkpoint is in its file."""
        self.last = checkpoint
        self.blocked = False

    # ---- without an index -------------------------------------------------------------------

    def here(self, journal: int | None) -> Checkpoint:
        """A checkpoint that covers everything appended so far."""
        segment, offset, _ = self._log.position
        number, index = self.last.number + 1, self.last.index
        return Checkpoint(number, segment, offset, self._log.footer, journal, index=index)

    def is_here(self, journal: int | None) -> bool:
        """True if the last checkpoint covers everything."""
        return self.last == replaced(self.here(journal), number=self.last.number)

    def write(self, checkpoint: Checkpoint) -> None:
        """Replace the file without a change to the index. DiskError."""
        write_checkpoint(self._files, self._disk, checkpoint)
        self.last = checkpoint

    def record_blocked(self, at: Checkpoint | None, journal_first: int | None) -> None:
        """Record durably that data is missing, so that every start reports it until the caller has dealt with it.
        ``at``: None if the checkpoint was lost. DiskError.
        """
        if not self.last.held:
            first = min(self._log.segments(), default=1)
            number = self.last.number  # that of a lost one, else the disk would seem an older copy
            at = at or Checkpoint(number, first, SEGMENT_HEADER_BYTES, 0, journal_first)
            self.write(replaced(at, held=True))
