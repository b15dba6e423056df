"""The tail marks of one disk: what each says, and when one may be written (storage/log/tail.py has the file).

A mark vouches for the log up to where it was durable. Until the data that a replay found missing has been dealt with,
nothing vouches for the end of the log.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from bkbox.base.values import replaced
from bkbox.errors import DiskError, DiskFullError
from bkbox.storage.disk.checkpointing import Checkpoints
from bkbox.storage.disk.disk_health import DiskHealth
from bkbox.storage.entries.entry_log import EntryLog
from bkbox.storage.files import Files
from bkbox.storage.log.journal import Journal
from bkbox.storage.log.tail import TailFile, TailMark

_NO_MARK = TailMark(0, 0, 0, 0, 0, 0)


class TailMarks:
    """Chooses and writes the tail marks of a disk. ``journal``: the one that acknowledges, None if the log does.
    ``generation``: that of this start of the bookie.
    """

    def __init__(
        self,
        files: Files,
        disk: Path,
        health: DiskHealth,
        checkpoints: Checkpoints,
        log: EntryLog,
        journal: Journal | None,
        generation: int,
    ) -> None:
        self._file = TailFile(files, disk)
        self._health = health
        self._checkpoints = checkpoints
        self._log = log
        self._journal = journal
        self._generation = generation

    @property
    def due(self) -> TailMark | None:
        """The next mark to write; None if the last one already says it, or nothing may be said yet."""
        if not self._may_vouch:
            return None
        mark = self._here()
        last = self._file.last
        if mark is None or (last is not None and replaced(mark, ms=last.ms) == last):
            return None
        return mark

    def note_end(self) -> None:
        """Write, unsynced, a mark of where the log ends; no ``write`` may be in flight. DiskFailedError."""
        if not self._may_vouch:
            return
        mark = self._here()
        if mark is None or not (self._journal or self._log).is_durable:
            segment, offset, _ = self._log.position
            mark = replaced(mark or _NO_MARK, segment=segment, offset=offset, durable=False)
        with self._health, suppress(DiskFullError):  # one mark less
            self._file.write_unsynced(mark)

    def write(self, mark: TailMark) -> DiskError | None:
        """Write a mark; on any thread, one call at a time. The error is returned, for ``end``."""
        try:
            self._file.write(mark)
        except DiskError as error:
            return error
        return None

    def end(self, error: DiskError | None) -> None:
        """End a write. After DiskFullError the mark is only late, which is harmless. DiskFailedError."""
        with self._health:
            if error is not None and not isinstance(error, DiskFullError):
                raise error

    def replace(self, mark: TailMark | None) -> None:
        """See TailFile."""
        self._file.replace(mark)

    def replace_with_end(self) -> None:
        """Make the end of the log the only mark, durably, if anything of it is durable. DiskError."""
        mark = self._here()
        if mark is not None:
            self._file.replace(mark)

    def close(self) -> None:
        self._file.close()

    @property
    def _may_vouch(self) -> bool:
        return not self._checkpoints.blocked and self._health.failed_reason is None

    def _here(self) -> TailMark | None:
        segment, offset, ms = self._log.durable_end
        in_journal = (0, 0, 0) if self._journal is None else self._journal.durable_end
        if not segment and not in_journal[0]:
            return None
        ms = max(ms, in_journal[2])
        return TailMark(segment, offset, in_journal[0], in_journal[1], ms, self._generation)
