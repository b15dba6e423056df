"""What the demo writes, and what it knows of it afterwards."""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path

import pytest

from bkbox.demo import source as sources
from bkbox.demo.source import ENTRY_BYTES_MAX, Stored
from bkbox.errors import CallerError


def test_files_in_the_order_of_their_names_each_in_entries_of_its_own(tmp_path: Path) -> None:
    data = {"a": os.urandom(40_000), "b": b"", "c/d": b"x" * 2_000_000}
    (tmp_path / "c").mkdir()
    for name, content in data.items():
        (tmp_path / name).write_bytes(content)
    manifest: list[Stored] = []
    entries = list(sources.from_path(tmp_path).entries(manifest))
    assert [(file.name, file.first, file.last) for file in manifest] == [
        ("a", 0, 2),
        ("b", 3, 2),
        ("c/d", 3, 125),
    ]
    for file in manifest:
        assert b"".join(entries[file.first : file.last + 1]) == data[file.name]
        assert file.sha256 == hashlib.sha256(data[file.name]).hexdigest()
        assert file.size == len(data[file.name])
    assert max(map(len, entries)) == ENTRY_BYTES_MAX


def test_little_input_is_cut_finer(tmp_path: Path) -> None:
    path = tmp_path / "little"
    path.write_bytes(bytes(640))
    assert len(list(sources.from_path(path).entries([]))) == 64
    path.write_bytes(b"1")
    assert list(sources.from_path(path).entries([])) == [b"1"]


def test_a_stream_is_one_file(tmp_path: Path) -> None:
    data = os.urandom(3_000_000)
    source = sources.from_stream(io.BytesIO(data), tmp_path / "copy")
    manifest: list[Stored] = []
    assert b"".join(source.entries(manifest)) == data
    assert [file.name for file in manifest] == ["-"]


def test_the_standard_library_is_source_and_no_tests() -> None:
    names = [name for name, _ in sources.standard_library().files]
    assert {"abc.py", "asyncio/events.py"} <= set(names)
    assert all(name.endswith(".py") for name in names)
    assert not {"test", "tests", "site-packages"} & {
        part for name in names for part in name.split("/")
    }


def test_input_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(CallerError, match="there is no file or folder"):
        sources.from_path(tmp_path / "missing")
    with pytest.raises(CallerError, match="nothing to write"):
        sources.from_path(tmp_path)
    path = tmp_path / "vanishes"
    path.write_bytes(b"data")
    source = sources.from_path(path)
    path.unlink()
    with pytest.raises(CallerError, match=r"cannot read .*vanishes"):
        list(source.entries([]))
