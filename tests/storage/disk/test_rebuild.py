"""An index that is made anew never hides what the log lost: the next start finds it missing until it is dealt with."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bkbox.errors import DamagedError, IndexDamagedError
from bkbox.storage.disk.checkpoint import read_checkpoint
from bkbox.storage.disk.rebuild import RebuildReport, _Rebuild, rebuild_index
from bkbox.storage.disk.replay import UNRESOLVED_LOSS
from bkbox.storage.files import RealFiles
from bkbox.storage.index.index import LedgerIndex
from bkbox.storage.index.ordered_store import LevelStore, MemoryStore
from bkbox.storage.log.records import AckAfter, LedgerRecord, ledger_record
from tests.harness.faultyfiles import CrashableFiles
from tests.storage.bench import Disk, entry, put
from tests.storage.disk.test_disk import fill, flip, offset_of


@pytest.fixture
def real_disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path, RealFiles(), level=True)


def rebuild(disk: Disk, *, keep_going: bool = True) -> RebuildReport:
    return rebuild_index(
        disk.files, disk.path, keep_going=keep_going, progress=lambda _done, _total: None
    )


def stopped_disk(disk: Disk) -> None:
    """Several segments, stopped in order; that the end is durable is said by the checkpoint alone."""
    store = disk.open(AckAfter.WRITE, segment_bytes_max=1_500)
    store.replay(False)
    fill(store, entries=20)
    put(store, ledger_record(1, LedgerRecord(fenced=True)))
    put(store, entry(2, 0), entry(2, 1))
    store.close()
    assert disk.segment(3).exists()


def last_segment(disk: Disk) -> Path:
    return max(
        (disk.path / "entrylog").glob("*.log"),
        key=lambda path: (path.stat().st_size > 64, path.name),
    )


@pytest.mark.parametrize(
    "lost", ["first entry", "last entry", "first segment", "a segment", "a header"]
)
def test_what_the_log_lost_is_missing_until_it_is_dealt_with(real_disk: Disk, lost: str) -> None:
    disk = real_disk
    stopped_disk(disk)
    if lost == "first entry":
        flip(disk.segment(), offset_of(disk.segment(), 1, 0))
    elif lost == "last entry":
        flip(last_segment(disk), offset_of(last_segment(disk), 2, 1))
    elif lost == "a header":
        flip(disk.segment(2), 20)
    else:
        disk.segment(1 if lost == "first segment" else 2).unlink()
    with pytest.raises(DamagedError, match=r"\.log|header"):
        rebuild(disk, keep_going=False)
    assert len(rebuild(disk).unreadable) == 1
    for _ in range(2):
        store = disk.open()
        report = store.replay(False)
        assert (report.trusted, report.damaged[-1:]) == (False, (UNRESOLVED_LOSS,))
        state = store.ledger_state(1)
        assert state is not None
        assert state.fenced
        store.abandon()
    store = disk.open()
    store.replay(False)
    store.resolve_losses()
    store.close()
    store = disk.open()
    assert store.replay(False).trusted
    store.close()


def test_a_whole_log_leaves_nothing_to_deal_with(real_disk: Disk) -> None:
    disk = real_disk
    stopped_disk(disk)
    shutil.rmtree(disk.path / "index")
    assert rebuild(disk).unreadable == ()
    store = disk.open()
    assert store.replay(False).trusted
    assert [store.read_entry(1, number) is not None for number in (0, 19, 20)] == [
        True,
        True,
        False,
    ]
    store.close()


def test_the_new_index_knows_only_what_is_durable(ram_path: Path) -> None:
    """Else a host that is lost afterwards would leave entries in it that the log has not, as if they had been lost."""
    disk = Disk(ram_path)
    store = disk.start(AckAfter.WRITE)
    fill(store, entries=20)
    store.abandon()
    made = MemoryStore()
    point = read_checkpoint(disk.files, disk.path)
    _Rebuild(disk.files, disk.path, LedgerIndex(made), point, lambda _done, _total: None).run()
    assert isinstance(disk.files, CrashableFiles)
    store = disk.open(files=disk.files.lose_host(), open_index=lambda *_: made)
    report = store.replay(host_crash=True)
    assert (report.dropped_entries, report.trusted) == (0, True)
    assert store.entries(1) == [(0, 19)]
    store.close()


def test_a_table_that_was_cut_is_seen_when_the_index_is_opened(tmp_path: Path) -> None:
    """LevelDB itself sees it when something in the table is asked for."""
    store = LevelStore(tmp_path / "index", create=True)
    store.write({b"L%d" % number: bytes(100) for number in range(100)})
    store.flush()
    store.close()
    (table,) = (tmp_path / "index").glob("*.ldb")
    LevelStore(tmp_path / "index").close()
    with table.open("r+b") as file:
        file.truncate(table.stat().st_size - 1)
    with pytest.raises(IndexDamagedError, match=r"\.ldb is not of"):
        LevelStore(tmp_path / "index")
    table.unlink()
    with pytest.raises(IndexDamagedError, match="missing"):
        LevelStore(tmp_path / "index")
