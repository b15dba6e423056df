"""What was recorded is read again; what is no recording is refused with its name."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path

import pytest
from bkbox_tui.recording import Recorder, read_recording
from bkbox_tui.snapshot import DiskFiles, Snapshot
from bkbox_tui.sources import Recording

from bkbox.errors import EncodingError, OperatorError
from tests.tui.screens import healthy, in_limbo, limbo_job

SNAPSHOTS = [
    Snapshot(1, healthy(), (limbo_job(),)),
    Snapshot(2, None, (), "gone", (DiskFiles("/data/a", "u", "stopped cleanly", 1, 2, ""),)),
    Snapshot(3, in_limbo()),
]


def record(path: Path) -> None:
    with Recorder(path) as recorder:
        for snapshot in SNAPSHOTS:
            recorder.add(snapshot)


def test_a_recording_is_read_as_it_was_written(tmp_path: Path) -> None:
    record(tmp_path / "night.jsonl.gz")
    assert list(read_recording(tmp_path / "night.jsonl.gz")) == SNAPSHOTS


def test_one_that_was_cut_short_has_what_came_before(tmp_path: Path) -> None:
    path = tmp_path / "night.jsonl.gz"
    record(path)
    whole = path.read_bytes()
    for end in range(60, len(whole), 97):
        path.write_bytes(whole[:end])
        found = list(read_recording(path))
        assert found == SNAPSHOTS[: len(found)]


def test_a_file_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "night.jsonl.gz"
    path.write_bytes(b"precious")
    with pytest.raises(OperatorError, match="is there already"):
        Recorder(path)
    assert path.read_bytes() == b"precious"


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.write_text("hello")
    with pytest.raises(EncodingError, match="no recording"):
        list(read_recording(path))
    with gzip.open(path, "wt") as lines:
        lines.write('{"bkbox_recording": 2}\n')
    with pytest.raises(EncodingError, match="this version"):
        list(read_recording(path))
    with pytest.raises(OperatorError, match="cannot be read"):
        list(read_recording(tmp_path / "missing"))


def test_a_replay_names_the_bookie_and_ends(tmp_path: Path) -> None:
    record(tmp_path / "night.jsonl.gz")
    source = Recording(tmp_path / "night.jsonl.gz")
    assert source.name == "10.0.0.1:3181 (night.jsonl.gz)"

    async def all_of_it() -> list[Snapshot | None]:
        return [await source.read() for _ in range(4)]

    assert asyncio.run(all_of_it()) == [*SNAPSHOTS, None]
