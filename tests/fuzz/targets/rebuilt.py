"""An index made anew from damaged segments, beside the one that a start makes of the same log."""

from __future__ import annotations

from bkbox.errors import BootError, DiskError
from bkbox.storage.disk.checkpoint import Checkpoint, write_checkpoint
from bkbox.storage.disk.rebuild import _Rebuild
from bkbox.storage.disk.replay import ReplayReport
from bkbox.storage.index.index import LedgerIndex
from bkbox.storage.index.ordered_store import MemoryStore
from bkbox.storage.log.records import LedgerRecord
from bkbox.storage.log.scan import read_segment
from bkbox.storage.log.segment import ENTRY_LOG_DIR, ENTRY_LOG_MAGIC, SegmentName, segment_file_name
from tests.fuzz.memoryfiles import MemoryFiles
from tests.fuzz.target import Choices, Target
from tests.fuzz.targets.disks import (
    DISK,
    UUID_OF_DISK,
    Entries,
    _entries,
    _logs,
    copied,
    new_disk,
    opened,
)
from tests.fuzz.targets.logs import segment_from


def check_rebuild(data: bytes) -> object:
    """Any few segments, and a checkpoint behind them or not: the new index has the entries and the states that a start
    finds that reads the whole log. Where it says that nothing is unreadable, a start whose checkpoint covers the whole
    log finds no less than one that knows of no checkpoint, and trusts it if that one does, or distrusts it for no more
    than what a GAP tells of: that was dealt with before there was such a checkpoint.
    """
    choices = Choices(data)
    files = new_disk()
    ends: dict[int, int] = {}
    for number in range(1, 1 + choices.below(4)):
        if choices.below(8) != 7:
            name = SegmentName(ENTRY_LOG_MAGIC, UUID_OF_DISK, number)
            path = DISK / ENTRY_LOG_DIR / segment_file_name(number)
            files.files[path] = bytearray(segment_from(choices, name))
            ends[number] = len(files.files[path])
    covered = choices.below(2) == 1 and ends
    at = Checkpoint(1, max(ends), ends[max(ends)], 0, None) if covered else None
    index, whole = MemoryStore(), MemoryStore()
    before = copied(files)
    rebuild = _Rebuild(files, DISK, LedgerIndex(index), at, lambda _done, _total: None)
    try:
        report = rebuild.run()
    except (DiskError, BootError) as error:
        return type(error), str(error)[-24:]
    assert files.files == before.files, "a rebuild changes nothing in the log"
    plain = _started(before, whole)
    if at is not None:
        write_checkpoint(files, DISK, at)
    again = _started(files, index)
    if plain is None or again is None:
        assert plain is again is None or at is not None
        return "no start"
    found, entries, states = plain
    assert again[1] == entries
    assert again[2] == states
    if covered and again[0].trusted and not report.unreadable:
        assert found.trusted or set(found.damaged) <= _gaps(before), "a loss is not noticed"
    return bool(covered), found.trusted, len(report.unreadable), len(entries) > 0, len(states) > 0


def _gaps(files: MemoryFiles) -> set[str]:
    """What GAPs tell of, in the words of a start."""
    told = set()
    for path in sorted(path for path in files.files if path.parent.name == ENTRY_LOG_DIR):
        name = SegmentName(ENTRY_LOG_MAGIC, UUID_OF_DISK, int(path.stem))
        gaps = read_segment(files, path, name, 0, lambda _record: None).gaps
        told |= {f"{path} bytes {start} to {end}" for start, end in gaps}
    return told


def _started(
    files: MemoryFiles, index: MemoryStore
) -> tuple[ReplayReport, Entries, list[tuple[int, LedgerRecord]]] | None:
    store = opened(files, index)
    try:
        report = store.replay(host_crash=False)
        return report, _entries(store), list(store.ledgers())
    except (DiskError, BootError):
        return None
    finally:
        store.abandon()


def _rebuilds() -> list[bytes]:
    return [each[2:] + bytes((covered,)) for each in _logs() for covered in (0, 1)]


TARGETS = (
    Target("rebuild", "an index made anew from damaged logs", _rebuilds, check_rebuild, 0.02),
)
