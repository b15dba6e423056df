"""The probe of a disk finds what does not come back as it was written."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkbox.errors import DamagedError, DiskError
from bkbox.storage.disk.write_probe import PROBE_NAME, probe
from bkbox.storage.files import AppendFile, ReadFile, RealFiles


class Forgetful(RealFiles):
    """A disk that says it has written, and gives back what was there before."""

    def open_read(self, path: Path) -> ReadFile:
        path.write_bytes(b"what an earlier probe left")
        return super().open_read(path)


class Unsynced(RealFiles):
    """Counts the syncs of the file before it is read."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def open_append(self, path: Path) -> AppendFile:
        file, calls = super().open_append(path), self.calls
        sync = file.fdatasync

        def counted() -> None:
            calls.append("sync")
            sync()

        file.fdatasync = counted  # type: ignore[method-assign]
        return file

    def open_read(self, path: Path) -> ReadFile:
        file, calls = super().open_read(path), self.calls
        release = file.release

        def counted(offset: int, length: int) -> None:
            calls.append("release")
            release(offset, length)

        file.release = counted  # type: ignore[method-assign]
        return file


def test_it_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / PROBE_NAME).write_bytes(b"x" * 9_000)  # a crash left it
    probe(RealFiles(), tmp_path, b"y" * 4_096)
    assert list(tmp_path.iterdir()) == []


def test_it_is_synced_and_read_from_the_disk(tmp_path: Path) -> None:
    files = Unsynced()
    probe(files, tmp_path, b"y" * 4_096)
    assert files.calls == ["sync", "release"]


def test_what_comes_back_otherwise_is_found(tmp_path: Path) -> None:
    with pytest.raises(DamagedError, match="does not hold what was written"):
        probe(Forgetful(), tmp_path, b"y" * 4_096)


def test_a_disk_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(DiskError, match="No such file"):
        probe(RealFiles(), tmp_path / "gone", b"y")
