"""One disk put together: what a start finds, what damage means, and that an index can be made again."""

from __future__ import annotations

import random
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from bkbox.errors import (
    BootError,
    BugError,
    DamagedError,
    DiskError,
    DiskFailedError,
    DiskFullError,
    InvalidIdError,
)
from bkbox.storage.disk import dirty_marker
from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.disk.format_disk import format_disk
from bkbox.storage.disk.rebuild import rebuild_index
from bkbox.storage.disk.replay import UNRESOLVED_LOSS
from bkbox.storage.files import RealFiles
from bkbox.storage.index import index as index_module
from bkbox.storage.index.index import LedgerIndex
from bkbox.storage.index.ordered_store import MemoryStore
from bkbox.storage.log.records import AckAfter, LedgerRecord, ledger_record
from tests.harness.faultyfiles import SECTOR_BYTES, Crash, CrashableFiles
from tests.storage.bench import IDENTITY, KEY, Disk, entry, entry_bytes, put

STATE = LedgerRecord(KEY)
LARGE = b"x" * 1_500


@pytest.fixture
def disk(ram_path: Path) -> Disk:
    return Disk(ram_path)


@pytest.fixture
def real_disk(tmp_path: Path) -> Disk:
    """The same over the operating system's files and LevelDB."""
    return Disk(tmp_path, RealFiles(), level=True)


def fill(store: DiskStore, *, ledger: int = 1, entries: int = 10, size: int = 100) -> None:
    """A ledger, then one commit per entry."""
    put(store, ledger_record(ledger, STATE))
    for number in range(entries):
        put(store, entry(ledger, number, bytes(size)))


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def offset_of(path: Path, ledger: int, number: int) -> int:
    """Where the body of an entry begins."""
    return path.read_bytes().index(entry_bytes(ledger, number)[:16])


# ---- the good case -----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", list(AckAfter))
def test_what_was_committed_is_read(real_disk: Disk, mode: AckAfter) -> None:
    disk = real_disk
    store = disk.start(mode)
    fill(store)
    put(store, ledger_record(2, LedgerRecord(fenced=True, limbo=True)))
    for again in range(2):
        assert store.read_entry(1, 4) == entry_bytes(1, 4, bytes(100))
        assert store.read_entry(1, 10) is None
        assert store.read_entry(9, 0) is None
        assert store.has_entry(1, 9)
        assert not store.has_entry(1, 10)
        assert store.last_entry_id(1) == 9
        assert store.last_entry_id(2) == -1
        assert store.entries(1) == [(0, 9)]
        assert list(store.ledgers()) == [(1, STATE), (2, LedgerRecord(None, True, True))]
        space = store.health.space()
        assert 0 < space.free <= space.total
        if not again:
            store.close()
            store = disk.open(mode)
            report = store.replay(False)
            assert (report.records, report.trusted) == (0, True)
    store.forget(1)
    assert store.read_entry(1, 4) is None
    assert store.ledger_state(1) is None
    store.close()


def test_entries_are_seen_when_appended_and_states_when_shown(disk: Disk) -> None:
    store = disk.start()
    state = ledger_record(1, STATE)
    store.append([entry(1, 0), state])
    store.index_appended()
    assert store.read_entry(1, 0) == entry_bytes(1, 0)
    assert store.ledger_state(1) is None
    store.sync()
    store.show(state)
    assert store.ledger_state(1) == STATE
    store.close()


def test_calls_out_of_order(disk: Disk) -> None:
    store = disk.open()
    with pytest.raises(BugError):
        store.read_entry(1, 0)
    store.replay(False)
    with pytest.raises(BugError):
        store.replay(False)
    state = ledger_record(1, STATE)
    store.append([state])
    store.index_appended()
    with pytest.raises(BugError):
        store.checkpoint()
    store.show(state)
    store.close()


@pytest.mark.parametrize(("ledger", "number"), [(-1, 0), (0, -1)])
def test_negative_ids_are_not_written(disk: Disk, ledger: int, number: int) -> None:
    store = disk.start()
    with pytest.raises(InvalidIdError):
        store.append([entry(1, 0), entry(ledger, number)])
    assert store.entries(1) == []
    store.close()


@pytest.mark.parametrize(
    ("mode", "syncs_of_entries", "syncs_of_state"),
    [(AckAfter.SYNC, 1, 1), (AckAfter.WRITE, 0, 1), (AckAfter.JOURNAL, 1, 1)],
)
def test_how_often_a_commit_syncs(
    ram_path: Path, mode: AckAfter, syncs_of_entries: int, syncs_of_state: int
) -> None:
    files = CrashableFiles(ram_path, random.Random(1))
    disk = Disk(ram_path, files)
    store = disk.start(mode)
    fill(store)
    before = files.syncs
    put(store, *(entry(1, number) for number in range(10, 20)))
    assert files.syncs - before == syncs_of_entries
    before = files.syncs
    put(store, ledger_record(1, LedgerRecord(KEY, fenced=True)))
    assert files.syncs - before == syncs_of_state
    before = files.syncs
    store.write([entry(1, 30)], durable=True)
    assert files.syncs - before == 1
    store.close()


def test_segments_roll_and_footers_count(disk: Disk) -> None:
    store = disk.open(segment_bytes_max=2_000)
    store.replay(False)
    fill(store, entries=6)
    store.checkpoint()
    store.abandon()
    (disk.path / "CHECKPOINT").unlink()  # so that what a footer counts is read again
    store = disk.open(segment_bytes_max=2_000)
    store.replay(False)
    for number in range(6, 40):
        put(store, entry(1, number, bytes(100)))
    log = store.log
    assert log.segments() == [1, 2, 3, 4, 5]
    counted = 0
    payload = b"\0" * 7 + b"\x64" + bytes(100)
    entries = sum(disk.segment(number).read_bytes().count(payload) for number in (1, 2, 3, 4))
    for segment in log.segments()[:-1]:
        data = disk.segment(segment).read_bytes()
        last_footer = int.from_bytes(data[-8:], "big")
        footers = log.read_footers(segment, last_footer)
        assert list(footers) == [1]
        assert footers[1][1] == footers[1][0] * 132
        counted += footers[1][0]
    assert store.entries(1) == [(0, 39)]
    assert counted == entries
    store.close()


# ---- preparing a disk --------------------------------------------------------------------------


def test_a_disk_is_prepared_once(disk: Disk) -> None:
    with pytest.raises(BootError, match="prepared already"):
        format_disk(disk.files, disk.path, IDENTITY)
    disk.start().close()
    (disk.path / "DISK").unlink()
    store_log = disk.path / "entrylog" / "0000000001.log"
    store_log.write_bytes(b"x")
    with pytest.raises(BootError, match="not empty"):
        format_disk(disk.files, disk.path, IDENTITY)
    with pytest.raises(BootError, match="not prepared"):
        disk.open()


def test_a_preparation_that_was_cut_short_is_finished(real_disk: Disk) -> None:
    disk = real_disk
    (disk.path / "DISK").unlink()
    format_disk(disk.files, disk.path, IDENTITY)
    disk.start().close()


# ---- process crashes ---------------------------------------------------------------------------


def test_replaying_twice_changes_nothing(disk: Disk) -> None:
    store = disk.start(AckAfter.WRITE)
    fill(store)
    put(store, *(entry(1, number, b"again") for number in (3, 4, 12)))
    store.abandon()
    saved = (disk.path / "CHECKPOINT").read_bytes()
    reports = []
    for _ in range(2):
        (disk.path / "CHECKPOINT").write_bytes(saved)
        store = disk.open()
        reports.append(store.replay(False))
        assert store.entries(1) == [(0, 9), (12, 12)]
        assert store.read_entry(1, 3) == entry_bytes(1, 3, b"again")
        store.abandon()
    assert [report.entries for report in reports] == [13, 13]


@pytest.mark.parametrize("kept", range(1, 48))
def test_a_write_that_a_kill_cut_is_cut_off(disk: Disk, kept: int) -> None:
    store = disk.start(AckAfter.WRITE)
    fill(store, entries=3)
    before = disk.end_of_segment()
    put(store, entry(1, 3, b""))
    store.abandon()
    data = disk.segment().read_bytes()
    assert disk.end_of_segment() == before + 16 + 32
    disk.segment().write_bytes(data[: before + kept])
    store = disk.open()
    report = store.replay(False)
    assert (report.bytes_cut, report.trusted) == (kept, True)
    assert disk.segment().read_bytes()[:before] == data[:before]
    put(store, entry(1, 3, b"again"))
    assert store.read_entry(1, 3) == entry_bytes(1, 3, b"again")
    store.close()


@pytest.mark.parametrize("kept", range(1, 48))
def test_a_write_over_filler_that_a_kill_cut_is_cut_off(disk: Disk, kept: int) -> None:
    store = disk.start(AckAfter.WRITE)
    fill(store, entries=3)
    padding = -(disk.end_of_segment() + 16 + 32 + kept) % SECTOR_BYTES
    put(store, entry(1, 3, bytes(padding)))
    before, filled = disk.end_of_segment(), disk.segment().read_bytes()
    put(store, entry(1, 4, b""))
    store.abandon()
    whole = disk.segment().read_bytes()
    assert disk.end_of_segment() == before + 16 + 32
    cut = before + kept
    assert cut % SECTOR_BYTES == 0  # a write is cut where a page ends
    disk.segment().write_bytes(whole[:cut] + filled[cut:])
    store = disk.open()
    report = store.replay(False)
    assert (report.bytes_cut, report.trusted) == (kept, True)
    assert store.entries(1) == [(0, 3)]
    put(store, entry(1, 4, b"again"))
    assert store.read_entry(1, 4) == entry_bytes(1, 4, b"again")
    store.close()


@pytest.mark.parametrize("filled", [1, 7, 8, 4096, 200_003])
def test_filler_need_not_be_whole(disk: Disk, filled: int) -> None:
    store = disk.start()
    fill(store, entries=3)
    store.abandon()
    end = disk.end_of_segment()
    disk.segment().write_bytes(disk.segment().read_bytes()[: end + filled])
    store = disk.open()
    report = store.replay(False)
    assert (report.bytes_cut, report.trusted) == (0, True)
    assert store.entries(1) == [(0, 2)]
    put(store, entry(1, 3))
    assert store.read_entry(1, 3) == entry_bytes(1, 3)
    store.close()


def test_filler_is_cut_off_a_segment_that_is_left(disk: Disk) -> None:
    store = disk.open(segment_bytes_max=300 << 10)
    store.replay(False)
    fill(store, entries=40, size=10_000)
    assert disk.segment(2).exists()
    assert disk.segment(1).stat().st_size == disk.end_of_segment(1) <= 300 << 10
    store.close()


def test_syncs_of_little_go_over_filler_and_large_ones_do_without(disk: Disk) -> None:
    store = disk.start()
    fill(store, entries=3)
    assert disk.segment().stat().st_size > disk.end_of_segment()
    large = [entry(1, 3 + number, bytes(100_000)) for number in range(4)]
    put(store, *large)
    assert disk.segment().stat().st_size == disk.end_of_segment()
    put(store, *[entry(1, 7 + number, bytes(100_000)) for number in range(4)])
    assert disk.segment().stat().st_size == disk.end_of_segment()
    store.abandon()


@pytest.mark.parametrize("number", [2, 9])
@pytest.mark.parametrize("back", [16, 12, 11, 8, 7, 6, 1, -20])  # from crc to kind, and the body
def test_a_wrong_record_is_damage_that_every_start_finds_until_a_checkpoint(
    disk: Disk, number: int, back: int
) -> None:
    store = disk.start()
    fill(store)
    store.abandon()
    flip(disk.segment(), offset_of(disk.segment(), 1, number) - back)
    for again in range(2):
        store = disk.open()
        report = store.replay(False)
        assert not report.trusted
        assert report.damaged[1:] == (UNRESOLVED_LOSS,) * again
        assert str(disk.segment()) in report.damaged[0]
        assert not store.has_entry(1, number)
        assert store.read_entry(1, number - 1) == entry_bytes(1, number - 1, bytes(100))
        assert not store.checkpoint_due
        store.abandon()
    store = disk.open()
    store.replay(False)
    put(store, entry(1, number, b"repaired"))
    store.checkpoint()
    store.abandon()
    store = disk.open()
    assert store.replay(False).trusted
    assert store.read_entry(1, number) == entry_bytes(1, number, b"repaired")
    store.close()
    report_of_rebuild = rebuild_index(
        disk.files, disk.path, keep_going=False, progress=lambda done, total: None
    )
    assert report_of_rebuild.unreadable == ()


def test_damage_found_while_reading_is_an_error_and_not_a_missing_entry(disk: Disk) -> None:
    store = disk.start()
    fill(store)
    flip(disk.segment(), offset_of(disk.segment(), 1, 5) + 40)
    with pytest.raises(DamagedError, match=r"0000000001\.log"):
        store.read_entry(1, 5)
    assert store.has_entry(1, 5)
    disk.segment().write_bytes(disk.segment().read_bytes()[:300])
    with pytest.raises(DamagedError):
        store.read_entry(1, 9)
    store.close()


def test_a_segment_that_vanished_is_an_error_and_not_a_missing_entry(disk: Disk) -> None:
    store = disk.start()
    fill(store)
    store.close()
    disk.segment().unlink()
    store = disk.open()
    report = store.replay(False)
    assert not report.trusted
    assert "missing" in report.damaged[0]
    put(store, entry(2, 0))
    assert store.log.segments() == [2]
    store.close()


def test_a_missing_segment_between_others_is_damage(disk: Disk) -> None:
    store = disk.open(segment_bytes_max=1_000)
    store.replay(False)
    fill(store, entries=20)
    store.abandon()
    disk.segment(2).unlink()
    store = disk.open()
    report = store.replay(False)
    assert report.damaged == (f"{disk.segment(2)} is missing",)
    assert not report.trusted
    store.close()


@pytest.mark.parametrize("mode", [AckAfter.SYNC, AckAfter.JOURNAL])
def test_an_old_segment_that_vanished_with_the_host_is_damage(disk: Disk, mode: AckAfter) -> None:
    store = disk.open(mode, segment_bytes_max=1_000)
    store.replay(False)
    fill(store, entries=20)
    store.checkpoint()
    put(store, entry(1, 20))
    store.abandon()
    disk.segment(1).unlink()
    for again in range(2):
        store = disk.open(mode)
        report = store.replay(True)
        assert report.damaged == (UNRESOLVED_LOSS if again else f"{disk.segment(1)} is missing",)
        assert bool(report.dropped_entries) is not bool(again)
        assert not report.trusted
        assert store.last_entry_id(1) == 20
        store.abandon()


def test_a_log_that_ends_before_the_checkpoint_is_damage(disk: Disk) -> None:
    store = disk.start()
    fill(store)
    store.close()
    disk.segment().write_bytes(disk.segment().read_bytes()[:500])
    for _ in range(2):
        store = disk.open()
        report = store.replay(False)
        assert not report.trusted
        assert "before the checkpoint" in report.damaged[0]
        assert not store.has_entry(1, 9)
        put(store, entry(2, 0))
        store.close()


@pytest.mark.parametrize("broken", [None, b"", b"nonsense\n"])
def test_without_a_checkpoint_everything_is_replayed(disk: Disk, broken: bytes | None) -> None:
    store = disk.open(segment_bytes_max=1_000)
    store.replay(False)
    fill(store, entries=20)
    store.close()
    if broken is None:
        (disk.path / "CHECKPOINT").unlink()
    else:
        (disk.path / "CHECKPOINT").write_bytes(broken)
    store = disk.open()
    report = store.replay(False)
    assert (report.entries, report.trusted) == (20, True)
    assert store.entries(1) == [(0, 19)]
    store.close()


# ---- host crashes ------------------------------------------------------------------------------


def test_an_entry_that_the_index_knows_and_the_log_lost_is_not_passed_over(real_disk: Disk) -> None:
    disk = real_disk
    store = disk.start()
    fill(store)
    store.index.flush()
    store.abandon()
    end = disk.end_of_segment()
    disk.segment().write_bytes(disk.segment().read_bytes()[: end - 1])
    for again in range(2):
        store = disk.open()
        report = store.replay(True)
        # The index held the entry, so it had been acknowledged: this disk lied about its sync.
        assert report.dropped_entries == 1
        assert report.damaged == (UNRESOLVED_LOSS,) * again
        assert report.bytes_cut == (0 if again else 16 + 32 + 100 - 1)
        assert not report.trusted
        store.abandon()


def test_a_hole_in_the_last_batch_is_kept_and_noted(disk: Disk) -> None:
    store = disk.start()
    fill(store, entries=3)
    store.append([entry(1, number, LARGE) for number in range(3, 8)])
    store.abandon()
    disk.unwrite_sector(offset_of(disk.segment(), 1, 5))
    saved = (disk.path / "CHECKPOINT").read_bytes()
    for _ in range(2):  # the judgement stays the same, though the segment is sealed after the first
        (disk.path / "CHECKPOINT").write_bytes(saved)
        store = disk.open()
        report = store.replay(True)
        assert report.damaged == ()
        assert report.trusted
        assert store.entries(1) == [(0, 4), (6, 7)]
        store.abandon()
    store = disk.start()
    put(store, entry(1, 8))
    assert store.log.segments() == [1, 2]
    store.close()


def test_a_wrong_record_in_the_last_batch_is_lost_if_all_of_it_was_written(disk: Disk) -> None:
    store = disk.start()
    fill(store, entries=3)
    store.append([entry(1, number) for number in range(3, 8)])
    store.abandon()
    flip(disk.segment(), offset_of(disk.segment(), 1, 5) + 30)
    for again in range(2):
        store = disk.open()
        report = store.replay(True)
        assert len(report.damaged) == 1 + again, "and every later start finds the same"
        assert not report.intact
        assert store.entries(1) == [(0, 4), (6, 7)]
        store.abandon()


def test_damage_below_the_proven_bound_is_damage_after_a_host_crash_too(disk: Disk) -> None:
    store = disk.start()
    fill(store)
    store.abandon()
    flip(disk.segment(), offset_of(disk.segment(), 1, 5))
    report = disk.open().replay(True)
    assert len(report.damaged) == 1
    assert not report.trusted


def test_a_damaged_header_is_reported_and_its_records_are_read(disk: Disk) -> None:
    store = disk.start()
    fill(store)
    store.abandon()
    flip(disk.segment(), 20)
    store = disk.open()
    report = store.replay(True)
    assert "header" in report.damaged[0]
    assert store.entries(1) == [(0, 9)]
    store.close()


def test_a_host_crash_under_write_is_never_trusted(disk: Disk) -> None:
    store = disk.start(AckAfter.WRITE)
    fill(store)
    store.abandon()
    store = disk.open(AckAfter.WRITE)
    assert not store.replay(True).trusted
    store.close()


@pytest.mark.parametrize("call", range(1, 40))
@pytest.mark.parametrize("mode", [AckAfter.SYNC, AckAfter.JOURNAL])
def test_a_loss_is_not_forgotten_by_a_start_that_crashes(
    ram_path: Path, mode: AckAfter, call: int
) -> None:
    files = CrashableFiles(ram_path, random.Random(call))
    disk = Disk(ram_path, files)
    store = disk.open(mode, segment_bytes_max=1_000)
    store.replay(False)
    fill(store, entries=20)
    store.checkpoint()
    put(store, entry(1, 20))
    store.abandon()
    disk.segment(1).unlink()
    files.crash_at(call)
    with suppress(Crash):
        store = disk.open(mode)
        store.replay(True)
    store.abandon()
    store = disk.open(mode, files=files.next_process())
    assert not store.replay(True).trusted
    store.abandon()


@pytest.mark.parametrize("seed", range(12))
def test_a_segment_whose_maker_was_killed_is_made_durable_by_the_next_run(
    ram_path: Path, seed: int
) -> None:
    """Killed after the header was written, before the name was synced."""
    files = CrashableFiles(ram_path, random.Random(seed))
    disk = Disk(ram_path, files)
    store = disk.start()
    files.crash_at(4)  # open, truncate, append, fdatasync
    with pytest.raises(Crash):
        store.append([entry(1, 0)])
    assert disk.segment().stat().st_size == 64
    files = files.next_process()
    store = disk.open(files=files)
    store.replay(False)
    put(store, entry(1, 0))
    store.abandon()
    store = disk.open(files=files.lose_host())
    assert store.replay(True).trusted
    assert store.read_entry(1, 0) == entry_bytes(1, 0)
    store.close()


# ---- journal -----------------------------------------------------------------------------------


def journaled(disk: Disk) -> None:
    """Entries, some twice, and a fence, none of which reached the entry log."""
    store = disk.start(AckAfter.JOURNAL)
    empty = disk.segment().exists()
    assert not empty
    fill(store)
    put(store, *(entry(1, number, b"again") for number in (3, 4, 12)))
    put(store, ledger_record(1, LedgerRecord(fenced=True)))
    store.abandon()
    disk.segment().unlink()


def test_the_journal_brings_back_what_the_log_lost(disk: Disk) -> None:
    journaled(disk)
    store = disk.open(AckAfter.JOURNAL)
    report = store.replay(True)
    assert (report.trusted, report.journal_records) == (True, 15)
    for _ in range(2):
        assert store.entries(1) == [(0, 9), (12, 12)]
        assert store.read_entry(1, 3) == entry_bytes(1, 3, b"again")
        assert store.read_entry(1, 5) == entry_bytes(1, 5, bytes(100))
        assert store.ledger_state(1) == LedgerRecord(KEY, fenced=True)
        store.close()
        store = disk.start(AckAfter.JOURNAL)
    store.close()


def test_the_journal_is_replayed_whatever_the_next_mode_is(disk: Disk) -> None:
    journaled(disk)
    store = disk.open(AckAfter.SYNC)
    assert store.replay(True).trusted
    assert store.entries(1) == [(0, 9), (12, 12)]
    store.close()
    assert store._journal is not None
    assert store._journal.segments() == []


def test_a_journal_that_the_configuration_does_not_name_is_asked_for(disk: Disk) -> None:
    journaled(disk)
    disk_open = DiskStore.open(
        disk.files,
        disk.path,
        ack_after=AckAfter.SYNC,
        journal_dir=None,
        segment_bytes_max=1_000,
        checkpoint_bytes=1_000,
        now_ms=lambda: 1,
    )
    with pytest.raises(BootError, match="journal"):
        disk_open.replay(True)


def test_damage_in_the_journal_is_damage(disk: Disk) -> None:
    journaled(disk)
    [path] = (disk.journal_dir / str(IDENTITY.uuid)).iterdir()
    flip(path, offset_of(path, 1, 2))
    store = disk.open(AckAfter.JOURNAL)
    report = store.replay(True)
    assert len(report.damaged) == 1
    assert str(path) in report.damaged[0]
    assert not report.trusted
    store.close()


def test_a_lost_journal_is_damage(disk: Disk) -> None:
    journaled(disk)
    shutil.rmtree(disk.journal_dir)
    report = disk.open(AckAfter.JOURNAL).replay(True)
    assert "missing" in report.damaged[0]


def test_checkpoints_retire_the_journal(disk: Disk) -> None:
    store = disk.start(AckAfter.JOURNAL)
    fill(store)
    assert store._journal is not None
    first = store._journal.segments()
    store.checkpoint()
    assert store._journal.segments() == [first[-1] + 1]
    store.close()
    assert store._journal.segments() == []


# ---- full and failing disks --------------------------------------------------------------------


@pytest.mark.parametrize("mode", list(AckAfter))
@pytest.mark.parametrize("call", range(1, 9))
@pytest.mark.parametrize("written", [0, 1, 90])
def test_a_full_disk_refuses_the_batch_and_lives_on(
    ram_path: Path, mode: AckAfter, call: int, written: int
) -> None:
    files = CrashableFiles(ram_path, random.Random(1))
    disk = Disk(ram_path, files)
    store = disk.open(mode, segment_bytes_max=700)
    store.replay(False)
    files.fail_append(call, DiskFullError, written)
    refused = 0
    for number in range(8):
        try:
            store.append([entry(1, number, bytes(100))])
        except DiskFullError:
            refused += 1
            assert store.health.failed_reason is None
            assert store.read_entry(1, number) is None
            store.append([entry(1, number, bytes(100))])
        store.index_appended()
        store.sync()
        assert store.read_entry(1, number) == entry_bytes(1, number, bytes(100))
    assert refused <= 1  # a segment that could not be made ahead of its use is tried again
    store.abandon()
    store = disk.open(mode)
    report = store.replay(False)
    assert (report.damaged, report.trusted) == ((), True)
    assert store.entries(1) == [(0, 7)]
    store.close()


def test_a_disk_without_any_room_still_starts_and_serves(ram_path: Path) -> None:
    files = CrashableFiles(ram_path, random.Random(1))
    disk = Disk(ram_path, files)
    store = disk.start()
    fill(store)
    files.budget = 60
    with pytest.raises(DiskFullError):
        store.append([entry(1, 10)])
    store.abandon()
    store = disk.open()
    assert store.replay(False).trusted
    assert store.entries(1) == [(0, 9)]
    files.budget = None
    put(store, entry(1, 10))
    store.close()


@pytest.mark.parametrize("mode", list(AckAfter))
@pytest.mark.parametrize("call", range(1, 12))
def test_a_failed_sync_ends_the_writing_and_the_next_start_is_a_host_crash(
    ram_path: Path, mode: AckAfter, call: int
) -> None:
    files = CrashableFiles(ram_path, random.Random(1))
    disk = Disk(ram_path, files)
    run = dirty_marker.Incarnation("boot", mode, "run")
    dirty_marker.begin_run(files, disk.path, run)
    store = disk.open(mode, segment_bytes_max=700)
    store.replay(False)
    files.fail_sync(call)
    committed = 0
    with pytest.raises(DiskFailedError, match="sync"):
        for number in range(20):
            put(store, ledger_record(1, STATE), entry(1, number, bytes(100)))
            committed = number + 1
    assert store.health.failed_reason is not None
    writes = files.appends
    for _ in range(2):
        with pytest.raises(DiskFailedError):
            store.append([entry(1, 30)])
        with pytest.raises(DiskFailedError):
            store.sync()
        with pytest.raises(DiskFailedError):
            store.checkpoint()
    assert files.appends == writes
    for number in range(committed):
        assert store.read_entry(1, number) == entry_bytes(1, number, bytes(100))
    store.close()
    found = dirty_marker.read_marker(files, disk.path)
    assert found is not None
    assert found.is_host_crash("boot")
    assert not dirty_marker.clear(files, disk.path, run)
    store = disk.open(mode)
    store.replay(True)
    for number in range(committed):
        assert store.read_entry(1, number) == entry_bytes(1, number, bytes(100))
    store.close()


def test_a_failed_write_that_cannot_be_undone_ends_the_writing(ram_path: Path) -> None:
    files = CrashableFiles(ram_path, random.Random(1))
    disk = Disk(ram_path, files)
    store = disk.start()
    fill(store)
    files.fail_append(1, DiskFullError, 7)
    files.fail_truncate = True
    with pytest.raises(DiskFailedError, match="truncate"):
        store.append([entry(1, 10)])
    with pytest.raises(DiskFailedError):
        store.append([entry(1, 10)])
    store.close()
    files.fail_truncate = False
    store = disk.open()
    assert store.replay(True).trusted
    assert store.entries(1) == [(0, 9)]
    store.close()


class _FullIndex(MemoryStore):
    full = False

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        if self.full:
            raise DiskFullError("index: no room")
        super().write(changes)


def test_an_index_without_room_keeps_its_checkpoint_waiting(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = _FullIndex()
    store = disk.open(open_index=lambda *_: index)
    store.replay(False)
    fill(store)
    index.full = True
    with pytest.raises(DiskFullError):
        store.checkpoint()
    put(store, entry(1, 10))
    assert store.entries(1) == [(0, 10)]
    with monkeypatch.context() as patch:
        patch.setattr(index_module, "INDEX_MEMORY_BYTES", 1)
        assert store.checkpoint_due
        assert store.is_backpressured
    with pytest.raises(DiskFullError):
        store.close()
    store = disk.open(open_index=lambda *_: index)  # still without room: it serves from memory
    assert store.replay(False).trusted
    assert store.entries(1) == [(0, 10)]
    put(store, entry(1, 11))
    index.full = False
    store.checkpoint()
    store.checkpoint()
    assert LedgerIndex(index).entries(1) == [(0, 11)]
    store.close()
    store = disk.open(open_index=lambda *_: index)
    assert store.replay(False).records == 0
    assert store.entries(1) == [(0, 11)]
    store.close()


def test_a_hole_before_a_seal_is_noted_too(disk: Disk) -> None:
    store = disk.open(segment_bytes_max=800)
    store.replay(False)
    put(store, ledger_record(1, STATE), entry(1, 0))
    store.append([entry(1, 1, LARGE)])
    store.index_appended()
    put(store, entry(1, 2))
    assert disk.end_of_segment(2) > 64
    store.abandon()
    for number in store.log.segments()[1:]:
        disk.segment(number).unlink()
    disk.unwrite_sector(offset_of(disk.segment(1), 1, 1))
    saved = (disk.path / "CHECKPOINT").read_bytes()
    for _ in range(2):
        (disk.path / "CHECKPOINT").write_bytes(saved)
        store = disk.open()
        report = store.replay(True)
        assert report.damaged == ()
        put(store, entry(1, 3))
        assert store.log.segments() == [1, 2]
        store.abandon()
    report_of_rebuild = rebuild_index(
        disk.files, disk.path, keep_going=False, progress=lambda done, total: None
    )
    assert report_of_rebuild.unreadable == ()


def test_a_failed_read_is_an_error_and_not_a_missing_entry(ram_path: Path) -> None:
    files = CrashableFiles(ram_path, random.Random(1))
    store = Disk(ram_path, files).start()
    fill(store)
    assert store.read_entry(1, 1) is not None
    files.fail_read = True
    with pytest.raises(DiskError):
        store.read_entry(1, 2)
    files.fail_read = False
    assert store.read_entry(1, 2) is not None
    store.close()


def test_real_files_are_private_and_their_errors_name_the_path(tmp_path: Path) -> None:
    disk = Disk(tmp_path, RealFiles())
    store = disk.start()
    fill(store)
    assert oct(disk.segment().stat().st_mode)[-3:] == "600"
    assert oct((disk.path / "entrylog").stat().st_mode)[-3:] == "700"
    store.close()
    files = RealFiles()
    with pytest.raises(DiskError, match="absent"):
        files.listdir(tmp_path / "absent")
    with pytest.raises(DiskFailedError, match="absent"):
        files.open_append(tmp_path / "absent" / "file")
    with pytest.raises(DiskFullError, match="/dev/full"):
        files.open_append(Path("/dev/full")).append(b"x")
    assert not files.exists(tmp_path / "absent")
    assert not files.exists(disk.segment() / "below a file")


# ---- rebuilding the index ----------------------------------------------------------------------


def contents(store: DiskStore) -> object:
    return [
        list(store.ledgers()),
        [(ledger, store.entries(ledger)) for ledger in (1, 2)],
        [store.read_entry(1, number) for number in range(30)],
    ]


def busy_disk(disk: Disk) -> object:
    store = disk.open(segment_bytes_max=1_500)
    store.replay(False)
    fill(store, entries=20)
    fill(store, ledger=2)
    put(store, *(entry(1, number, b"again") for number in (3, 4, 25)))
    store.forget(2)
    put(store, ledger_record(1, LedgerRecord(fenced=True)))
    found = contents(store)
    store.close()
    return found


@pytest.mark.parametrize("broken", ["missing", "truncated", "whole"])
def test_a_rebuilt_index_equals_the_original(real_disk: Disk, broken: str) -> None:
    disk = real_disk
    before = busy_disk(disk)
    if broken == "missing":
        shutil.rmtree(disk.path / "index")
    elif broken == "truncated":
        for path in (disk.path / "index").glob("MANIFEST*"):
            path.write_bytes(path.read_bytes()[:10])
    if broken != "whole":
        with pytest.raises(DamagedError, match="index"):
            disk.open().replay(False)
    seen: list[tuple[int, int]] = []
    report = rebuild_index(
        disk.files,
        disk.path,
        keep_going=False,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert (report.entries, report.ledgers, report.unreadable) == (33, 1, ())
    assert seen[-1][0] == seen[-1][1] == report.bytes_read
    assert sorted(path.name for path in disk.path.iterdir() if path.is_dir()) == [
        "entrylog",
        "index",
    ]
    store = disk.start()
    assert contents(store) == before
    store.close()


def test_a_rebuild_refuses_damage_unless_told_otherwise(real_disk: Disk) -> None:
    disk = real_disk
    busy_disk(disk)
    flip(disk.segment(), offset_of(disk.segment(), 1, 2))
    old = sorted(path.name for path in (disk.path / "index").iterdir())
    with pytest.raises(DamagedError, match=r"0000000001\.log bytes"):
        rebuild_index(disk.files, disk.path, keep_going=False, progress=lambda d, t: None)
    assert sorted(path.name for path in (disk.path / "index").iterdir()) == old
    report = rebuild_index(disk.files, disk.path, keep_going=True, progress=lambda d, t: None)
    assert len(report.unreadable) == 1
    store = disk.start()
    assert store.read_entry(1, 2) is None
    assert store.read_entry(1, 5) is not None
    store.close()
