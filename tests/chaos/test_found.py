"""What runs of chaos have found: a test each, with what it was and the seed."""

from __future__ import annotations

from pathlib import Path

from bkbox.bookie.bookie import Bookie
from bkbox.bookie.readonly import DISK_FAILED
from tests.bookie.bench import bookie_of, new_disk, open_store, process
from tests.harness import raw


def codes(bookie: Bookie, *frames: bytes) -> list[int]:
    return [int.from_bytes(body[4:8], "big", signed=True) for body in process(bookie, *frames)]


def test_a_disk_whose_folder_is_gone_takes_no_more_entries_and_denies_none(
    tmp_path: Path,
) -> None:
    """Seed 7, lost-disk: its worker ended with a traceback when it looked for the room on the disk."""
    disk = new_disk(tmp_path)
    store = open_store(disk)
    bookie = bookie_of(store)
    assert codes(bookie, raw.add_frame(1, 0, b"before")) == [raw.EOK]
    disk.rename(tmp_path / "gone")
    bookie.watch_space(0.95, 0)
    assert bookie.read_only.reasons == {DISK_FAILED}
    assert codes(bookie, raw.read_frame(1, 0)) == [raw.EIO]
    assert codes(bookie, raw.add_frame(1, 1, b"after")) == [raw.EREADONLY]
    (tmp_path / "gone").rename(disk)
    bookie.watch_space(1.0, 0)
    assert bookie.read_only.reasons == {DISK_FAILED}, "until the next start"
    store.abandon()
