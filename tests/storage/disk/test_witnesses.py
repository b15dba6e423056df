"""Logs that end too early, and indexes from another time: what is whole in itself is compared with what saw more."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

from bkbox.errors import DiskFullError, IndexDamagedError
from bkbox.ipc.messages.disk import OpenDisk
from bkbox.storage.disk.checkpoint import read_checkpoint
from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.disk.replay import UNRESOLVED_LOSS, ReplayReport
from bkbox.storage.files import RealFiles
from bkbox.storage.index.ordered_store import MemoryStore
from bkbox.storage.log.records import (
    OFFSET,
    AckAfter,
    Kind,
    LedgerRecord,
    Record,
    entry_record,
    ledger_record,
)
from bkbox.storage.log.scan import SegmentFindings, read_segment
from bkbox.storage.log.segment import (
    FILLED_BYTES_MAX,
    RECORD_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    encode_segment_header,
    filler,
    put_record,
)
from bkbox.storage.log.tail import TAIL_NAME, TailFile, TailMark, read_tail
from bkbox.worker.disk_startup import OpenedDisk, Opening
from tests.harness.faultyfiles import SECTOR_BYTES, CrashableFiles
from tests.storage.bench import KEY, Disk, entry, entry_bytes, put, segment_name

FENCED = LedgerRecord(KEY, fenced=True)


@pytest.fixture
def disk(ram_path: Path) -> Disk:
    return Disk(ram_path)


def fill(store: DiskStore, first: int = 0, end: int = 10) -> None:
    for number in range(first, end):
        put(store, entry(1, number))


def rest(store: DiskStore) -> None:
    """What a worker does when nothing comes (worker/commit_groups.py)."""
    store.sync()
    if not store.is_proven:
        store.prove()
        store.sync()
    mark = store.tail_marks.due
    if mark is not None:
        store.tail_marks.end(store.tail_marks.write(mark))


def rested(disk: Disk, mode: AckAfter = AckAfter.SYNC) -> None:
    """Ledger 1 with entries 0..9; the process was killed when the disk had rested."""
    store = disk.start(mode)
    put(store, ledger_record(1, LedgerRecord(KEY)))
    fill(store)
    rest(store)
    store.abandon()


def again(disk: Disk, mode: AckAfter = AckAfter.SYNC, **options: bool) -> ReplayReport:
    """What another start finds, which is killed."""
    store = disk.open(mode)
    report = store.replay(options.pop("host_crash", False), **options)
    store.abandon()
    return report


def cut_before(path: Path, number: int) -> None:
    """The log ends where the record of an entry began: in good order."""
    data = path.read_bytes()
    path.write_bytes(data[: data.index(entry_bytes(1, number)[:16]) - RECORD_HEADER_BYTES])


def findings(disk: Disk, number: int = 1) -> SegmentFindings:
    return read_segment(
        RealFiles(), disk.segment(number), segment_name(number), 0, lambda _record: None
    )


# ---- the tail mark -------------------------------------------------------------------------------


@pytest.mark.parametrize("host_crash", [False, True])
@pytest.mark.parametrize("number", [0, 5, 9])
def test_a_log_that_was_cut_at_a_record_is_a_loss(
    disk: Disk, number: int, host_crash: bool
) -> None:
    rested(disk)
    cut_before(disk.segment(), number)
    for starts in range(2):
        store = disk.open()
        report = store.replay(host_crash)
        assert "TAIL has seen" in report.damaged[0] or starts
        assert not report.intact
        assert not report.trusted
        assert store.last_entry_id(1) == number - 1
        store.abandon()


def test_the_log_goes_on_beyond_what_a_tail_mark_saw_of_a_cut_one(disk: Disk) -> None:
    rested(disk)
    cut_before(disk.segment(), 5)
    store = disk.open()
    assert not store.replay(True).intact
    assert store.tail_marks.due is None, (
        "before it is settled nothing vouches for the end of this log"
    )
    store.resolve_losses()
    mark = read_tail(RealFiles(), disk.path)
    assert mark is not None
    assert mark.segment == store.log.position.segment > 1
    store.abandon()
    for host_crash in (True, False):
        report = again(disk, host_crash=host_crash)
        assert (report.intact, report.damaged) == (True, ())
    store = disk.open()
    store.replay(False)
    fill(store, 10, 12)
    rest(store)
    used = store.log.position.segment
    store.abandon()
    assert again(disk, host_crash=True).intact
    cut_before(disk.segment(used), 10)
    assert not again(disk).intact, "the mark is of this log now"


@pytest.mark.parametrize("host_crash", [False, True])
def test_a_last_segment_that_is_gone_is_a_loss(disk: Disk, host_crash: bool) -> None:
    store = disk.open(segment_bytes_max=400)
    store.replay(False)
    put(store, ledger_record(1, LedgerRecord(KEY)))
    fill(store)
    rest(store)
    store.abandon()
    used = [each for each in store.log.segments() if disk.end_of_segment(each) > 64]
    for number in range(used[-1], store.log.segments()[-1] + 1):
        disk.segment(number).unlink()
    report = again(disk, host_crash=host_crash)
    assert any("TAIL has seen" in each for each in report.damaged)
    assert not report.intact


@pytest.mark.parametrize("mode", list(AckAfter))
@pytest.mark.parametrize("host_crash", [False, True])
def test_a_log_that_goes_on_behind_its_tail_mark_is_no_loss(
    disk: Disk, mode: AckAfter, host_crash: bool
) -> None:
    rested(disk, mode)
    store = disk.start(mode)
    fill(store, 10, 15)
    store.abandon()
    assert again(disk, mode, host_crash=host_crash).intact


def test_the_mark_before_a_torn_one_counts(disk: Disk) -> None:
    rested(disk)
    store = disk.start()
    fill(store, 10, 13)
    rest(store)
    fill(store, 13, 16)
    rest(store)
    store.abandon()
    tail = disk.path / TAIL_NAME
    whole, log = tail.read_bytes()[48:], disk.segment().read_bytes()
    assert len(whole) == 2 * 48
    for kept in range(48, 96):
        tail.write_bytes(whole[:kept] + bytes(96 - kept) * (kept % 2))
        mark = read_tail(RealFiles(), disk.path)
        assert mark is not None
        assert mark.offset < len(log)
        assert mark == read_one(whole[:48], disk)
    tail.write_bytes(whole[:70])
    cut_before(disk.segment(), 14)
    (disk.path / "CHECKPOINT.kept").write_bytes((disk.path / "CHECKPOINT").read_bytes())
    assert again(disk).intact, "what the first mark saw is there"
    disk.segment().write_bytes(log)
    cut_before(disk.segment(), 11)
    shutil.copy(disk.path / "CHECKPOINT.kept", disk.path / "CHECKPOINT")
    assert not again(disk).intact


def read_one(data: bytes, disk: Disk) -> TailMark | None:
    folder = disk.folder / "other"
    folder.mkdir(exist_ok=True)
    (folder / TAIL_NAME).write_bytes(data)
    return read_tail(RealFiles(), folder)


@pytest.mark.parametrize("mode", [AckAfter.SYNC, AckAfter.WRITE])
@pytest.mark.parametrize("number", [0, 9, None])
def test_a_log_that_lost_what_a_killed_process_wrote_last_is_a_loss(
    disk: Disk, mode: AckAfter, number: int | None
) -> None:
    """No mark of it was synced: the kernel has it."""
    store = disk.start(mode)
    put(store, ledger_record(1, LedgerRecord(KEY)))
    fill(store)
    store.tail_marks.note_end()
    store.abandon()
    if number is None:
        disk.segment().unlink()
    else:
        cut_before(disk.segment(), number)
    for _ in range(2):
        assert not again(disk, mode).intact


def test_what_was_only_written_is_void_after_a_host_crash(disk: Disk) -> None:
    rested(disk, AckAfter.WRITE)
    store = disk.start(AckAfter.WRITE)
    fill(store, 10, 15)
    store.tail_marks.note_end()
    store.abandon()
    cut_before(disk.segment(), 12)
    assert again(disk, AckAfter.WRITE, host_crash=True).intact
    assert again(disk, AckAfter.WRITE).intact, "the start before has put the mark away"


@pytest.mark.parametrize("data", [None, b"", b"x", bytes(48), bytes(96), b"TAL1" * 100])
def test_a_lost_tail_mark_costs_the_witness_and_no_more(disk: Disk, data: bytes | None) -> None:
    rested(disk)
    (disk.path / TAIL_NAME).unlink()
    if data is not None:
        (disk.path / TAIL_NAME).write_bytes(data)
    assert read_tail(RealFiles(), disk.path) is None
    store = disk.open()
    assert store.replay(True).intact
    rest(store)
    assert read_tail(RealFiles(), disk.path) is not None
    store.close()


def test_marks_are_appended_and_begin_anew_now_and_then(tmp_path: Path) -> None:
    files = CrashableFiles(tmp_path, random.Random(1))
    tail = TailFile(files, tmp_path)
    sizes = []
    for offset in range(3_000):
        mark = TailMark(1, offset, 0, 0, 5, 7)
        tail.write(mark)
        assert tail.last == mark
        sizes.append((tmp_path / TAIL_NAME).stat().st_size)
        if offset % 500 == 0:
            assert read_tail(files, tmp_path) == mark
    assert max(sizes) <= 64 << 10
    assert sizes.count(48) == 1 + 3_000 * 48 // (64 << 10)
    tail.close()


@pytest.mark.parametrize("seed", range(20))
def test_a_mark_that_was_written_outlives_the_host(tmp_path: Path, seed: int) -> None:
    files = CrashableFiles(tmp_path, random.Random(seed))
    tail = TailFile(files, tmp_path)
    for offset in range(3):
        tail.write(TailMark(1, offset, 0, 0, 5, 7))
    files = files.lose_host()
    assert read_tail(files, tmp_path) == TailMark(1, 2, 0, 0, 5, 7)


@pytest.mark.parametrize("host_crash", [False, True])
@pytest.mark.parametrize("how", ["cut", "gone"])
def test_a_journal_that_ends_too_early_is_a_loss(disk: Disk, how: str, host_crash: bool) -> None:
    rested(disk, AckAfter.JOURNAL)
    (journal,) = [path for path in disk.journal_dir.rglob("*.log") if len(path.read_bytes()) > 64]
    if how == "cut":
        cut_before(journal, 5)
    else:
        journal.unlink()
    report = again(disk, AckAfter.JOURNAL, host_crash=host_crash)
    assert report.damaged
    assert not report.intact
    store = disk.open(AckAfter.JOURNAL)
    assert not store.replay(False).intact
    store.resolve_losses()
    put(store, entry(1, 10))
    rest(store)
    store.abandon()
    assert again(disk, AckAfter.JOURNAL, host_crash=True).intact


def test_an_entry_log_that_was_cut_comes_back_from_the_journal(disk: Disk) -> None:
    """After a process crash, too: the log was never synced, and what it has does not say so."""
    store = disk.start(AckAfter.JOURNAL)
    put(store, ledger_record(1, LedgerRecord(KEY)))
    fill(store)
    store.abandon()
    cut_before(disk.segment(), 4)
    store = disk.open(AckAfter.JOURNAL)
    assert store.replay(False).trusted
    assert store.entries(1) == [(0, 9)]
    store.close()


# ---- others that saw more ------------------------------------------------------------------------


def test_others_have_seen_a_longer_log(disk: Disk) -> None:
    store = disk.start()
    fill(store)
    store.sync()
    seen = store.durable
    store.abandon()
    cut_before(disk.segment(), 9)
    store = disk.open()
    report = store.replay(False, seen=seen)
    assert "the record of the disks has seen" in report.damaged[0]
    store.resolve_losses()
    assert store.durable[1:] > seen[1:]
    now = store.durable
    store.abandon()
    for known in (seen, now):
        store = disk.open()
        assert store.replay(False, seen=known).intact
        store.abandon()


@pytest.mark.parametrize("steps", ["", "rest", "checkpoint", "checkpoint rest", "rest checkpoint"])
@pytest.mark.parametrize("mode", list(AckAfter))
def test_a_clean_stop_leaves_nothing_behind_the_checkpoint(
    disk: Disk, mode: AckAfter, steps: str
) -> None:
    store = disk.start(mode)
    put(store, ledger_record(1, LedgerRecord(KEY)))
    fill(store)
    for step in steps.split():
        rest(store) if step == "rest" else store.checkpoint()
    store.close()
    durable = store.durable
    for _ in range(2):
        store = disk.open(mode)
        report = store.replay(False, is_clean=True, seen=durable)
        assert (report.records, report.trusted, report.damaged) == (0, True, ())
        rest(store)
        store.close()


def test_a_clean_disk_whose_log_goes_on_behind_its_checkpoint_is_a_loss(disk: Disk) -> None:
    """Somebody has put back an older checkpoint and its index, or taken the dirty marker away."""
    store = disk.start()
    fill(store)
    store.abandon()
    store = disk.open()
    report = store.replay(False, is_clean=True)
    assert any("no dirty marker says why" in each for each in report.damaged)
    assert not report.intact
    assert store.entries(1) == [(0, 9)]
    store.abandon()
    assert UNRESOLVED_LOSS in again(disk, is_clean=True).damaged


def test_a_lost_checkpoint_of_a_log_that_is_not_in_order_keeps_its_number(disk: Disk) -> None:
    """A start that is killed before it dealt with the loss: else the next one takes the disk for an older copy."""
    store = disk.start()
    fill(store)
    store.checkpoint()
    seen = store.durable
    assert seen[0] == 1
    store.abandon()
    (disk.path / "CHECKPOINT").unlink()
    data = bytearray(disk.segment().read_bytes())
    data[data.index(entry_bytes(1, 3)[:16]) + 16] ^= 1
    disk.segment().write_bytes(data)
    store = disk.open()
    assert not store.replay(True, seen=seen).intact
    store.abandon()
    kept = read_checkpoint(RealFiles(), disk.path)
    assert kept is not None
    assert (kept.held, kept.number) == (True, seen[0])


@pytest.mark.parametrize("is_clean", [False, True])
def test_a_disk_without_a_record_begins_no_further_segment_and_takes_no_checkpoint(
    disk: Disk, is_clean: bool
) -> None:
    seen = (0, 0, 0)
    for starts in range(3):
        store = disk.open()
        before = read_checkpoint(RealFiles(), disk.path)
        assert store.replay(False, is_clean=is_clean, seen=seen).intact
        assert store.log.position.segment == 1
        if starts:
            assert store.checkpoints.last == before
        rest(store)
        seen = store.durable
        store.close()


# ---- what the device did not take ----------------------------------------------------------------


@pytest.mark.parametrize("mode", list(AckAfter))
def test_what_the_device_did_not_take_is_a_loss_until_it_is_settled(
    disk: Disk, mode: AckAfter
) -> None:
    store = disk.start(mode)
    put(store, ledger_record(1, LedgerRecord(KEY)))
    fill(store)
    store.abandon()
    store = disk.open(mode)
    assert isinstance(disk.files, CrashableFiles)
    disk.files.fail_sync(1)
    report = store.replay(False)
    store.abandon()
    assert "did not reach the device" in report.damaged[0]
    assert not report.intact
    for host_crash in (False, True):  # the kernel says so once
        assert UNRESOLVED_LOSS in again(disk, mode, host_crash=host_crash).damaged
    store = disk.open(mode)
    store.replay(False)
    store.resolve_losses()
    store.abandon()
    assert again(disk, mode).intact


def test_what_the_device_did_not_take_is_a_loss_also_if_the_index_has_to_be_made_anew(
    disk: Disk,
) -> None:
    store = disk.start(AckAfter.WRITE)
    put(store, ledger_record(1, LedgerRecord(KEY)))
    store.abandon()

    def damaged(*_: object) -> NoReturn:
        raise IndexDamagedError("a table")

    store = disk.open(AckAfter.WRITE, open_index=damaged)
    assert isinstance(disk.files, CrashableFiles)
    disk.files.fail_sync(1)
    with pytest.raises(IndexDamagedError):
        store.replay(False)
    store.abandon()
    assert UNRESOLVED_LOSS in again(disk, AckAfter.WRITE).damaged


def test_a_start_after_a_clean_stop_or_a_lost_host_syncs_no_file_system(disk: Disk) -> None:
    disk.start().close()
    assert isinstance(disk.files, CrashableFiles)
    for options in ({"is_clean": True}, {"host_crash": True}):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(disk.files, "sync_file_system", None)
            assert again(disk, **options).intact


# ---- the stamp of the index ----------------------------------------------------------------------


@pytest.fixture
def real(tmp_path: Path) -> Disk:
    """With LevelDB."""
    return Disk(tmp_path, RealFiles(), level=True)


def open_as_a_worker(disk: Disk, *, is_clean: bool = True) -> OpenedDisk:
    order = OpenDisk(
        path=str(disk.path),
        journal="",
        ack_after="sync",
        host_crash=False,
        is_clean=is_clean,
        generation=3,
        seen=[0, 0, 0],
        segment_bytes_max=1 << 20,
        checkpoint_bytes=1 << 20,
        slow_operation_ms=0,
        disk_usage_max=1.0,
        disk_reserve_bytes=0,
        disk_usage_resume=1.0,
    )
    return Opening(RealFiles(), order, lambda: 0, lambda: 0).run(lambda _done, _total: None)


def twice_stopped(disk: Disk) -> Path:
    """Entries 0..4, a copy of the disk; entries 5..9 and a fence. Both times it was stopped in order."""
    store = disk.start()
    put(store, ledger_record(1, LedgerRecord(KEY)))
    fill(store, 0, 5)
    store.close()
    copy = disk.folder / "copy"
    shutil.copytree(disk.path, copy)
    store = disk.start()
    fill(store, 5, 10)
    put(store, ledger_record(1, FENCED))
    store.close()
    return copy


def test_an_index_that_is_an_older_copy_is_made_anew(real: Disk) -> None:
    copy = twice_stopped(real)
    shutil.rmtree(real.path / "index")
    shutil.copytree(copy / "index", real.path / "index")
    store = real.open()
    with pytest.raises(IndexDamagedError, match="an older copy"):
        store.replay(False, is_clean=True)
    store.abandon()
    for rebuilt in (True, False):
        opened = open_as_a_worker(real)
        assert ("older copy" in opened.rebuilt) is rebuilt
        assert (opened.report.intact, opened.report.damaged) == (True, ())
        assert opened.store.entries(1) == [(0, 9)]
        assert opened.store.ledger_state(1) == FENCED
        opened.store.close()


@pytest.mark.parametrize("host_crash", [False, True])
def test_an_index_that_knows_a_longer_log_is_a_loss(real: Disk, host_crash: bool) -> None:
    copy = twice_stopped(real)
    shutil.rmtree(copy / "index")
    shutil.copytree(real.path / "index", copy / "index")
    shutil.rmtree(real.path)
    shutil.copytree(copy, real.path)
    store = real.open()
    report = store.replay(host_crash, is_clean=not host_crash)
    assert any("its index has seen" in each for each in report.damaged)
    assert not report.intact
    assert store.ledger_state(1) == FENCED, "what the index has it keeps"
    assert store.entries(1) == [(0, 4)]
    store.close()


def test_an_index_without_a_stamp_is_of_a_version_before(real: Disk) -> None:
    """Its checkpoint names none either."""
    store = real.start()
    fill(store)
    store.index.flush()
    store.abandon()
    assert store.checkpoints.last.index == 0
    opened = open_as_a_worker(real, is_clean=False)
    assert (opened.rebuilt, opened.report.intact) == ("", True)
    opened.store.close()
    opened = open_as_a_worker(real)
    assert opened.store.index.stamp().number == opened.store.checkpoints.last.index > 0
    opened.store.close()


def test_a_lost_checkpoint_does_not_make_the_index_a_newer_one_for_ever(real: Disk) -> None:
    twice_stopped(real)
    for _ in range(2):
        (real.path / "CHECKPOINT").unlink()
        opened = open_as_a_worker(real, is_clean=False)
        assert (opened.rebuilt, opened.report.damaged) == ("", ())
        assert opened.store.entries(1) == [(0, 9)]
        opened.store.close()
        opened = open_as_a_worker(real)
        assert (opened.rebuilt, opened.report.damaged) == ("", ())
        opened.store.close()


# ---- segments of format 1 ------------------------------------------------------------------------


def segment_of_format_1(monkeypatch: pytest.MonkeyPatch, *, filled: bool) -> bytearray:
    """A ledger, and entries 0..2, each but the last proven by a SYNCED record; then filler, as that version left it."""
    with monkeypatch.context() as patch:
        patch.setattr("bkbox.storage.log.segment.FORMAT", 1)
        data = bytearray(encode_segment_header(segment_name(), 5))
    records = [ledger_record(1, FENCED)]
    for number in range(3):
        records += [Record(Kind.SYNCED, b""), entry_record(entry_bytes(1, number, b"x" * 1_500))]
    for kind, body in records:
        start = len(data)
        content = OFFSET.pack(start) if kind is Kind.SYNCED else bytes(body)
        data += bytes(RECORD_HEADER_BYTES + len(content))
        put_record(data, start, Record(kind, content), segment_name().seed, 1, start)
    if filled:
        data += filler(segment_name().seed, len(data), FILLED_BYTES_MAX // 2)
    return data


@pytest.mark.parametrize("host_crash", [False, True])
@pytest.mark.parametrize("filled", [False, True])
def test_a_segment_of_format_1_is_read_and_never_appended_to(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, filled: bool, host_crash: bool
) -> None:
    disk.segment().write_bytes(segment_of_format_1(monkeypatch, filled=filled))
    end = disk.end_of_segment()
    store = disk.open()
    report = store.replay(host_crash)
    assert (report.trusted, report.damaged, report.entries) == (True, (), 3)
    put(store, entry(1, 3))
    assert store.log.position.segment == 2
    assert store.entries(1) == [(0, 3)]
    assert store.ledger_state(1) == FENCED
    store.abandon()
    old, new = findings(disk), findings(disk, 2)
    assert (old.format, new.format) == (1, 2)
    assert old.is_sealed
    assert disk.end_of_segment() > end
    (disk.path / "CHECKPOINT").unlink()
    store = disk.open(open_index=lambda *_: MemoryStore())
    report = store.replay(host_crash)
    assert (report.trusted, report.entries) == (True, 4)
    assert store.log.position.segment == 2
    store.close()


@pytest.mark.parametrize("torn", [False, True])
def test_the_last_batch_of_a_segment_of_format_1(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, torn: bool
) -> None:
    data = segment_of_format_1(monkeypatch, filled=True)
    at = data.index(entry_bytes(1, 2, b"x" * 1_500)[:16])
    disk.segment().write_bytes(data)
    if torn:
        disk.unwrite_sector(at)
    else:
        data[at + SECTOR_BYTES] ^= 1
        disk.segment().write_bytes(data)
    store = disk.open()
    report = store.replay(True)
    assert report.intact is torn
    assert store.entries(1) == [(0, 1)]
    put(store, entry(1, 3))
    assert store.log.position.segment == 2
    store.abandon()


def test_a_disk_that_has_no_room_for_a_tail_mark_goes_on(disk: Disk) -> None:
    store = disk.start()
    fill(store)
    assert isinstance(disk.files, CrashableFiles)
    mark = store.tail_marks.due
    assert mark is not None
    disk.files.budget = 0
    error = store.tail_marks.write(mark)
    assert isinstance(error, DiskFullError)
    store.tail_marks.end(error)
    assert store.health.failed_reason is None
    disk.files.budget = None
    store.close()
    assert disk.end_of_segment() > SEGMENT_HEADER_BYTES
