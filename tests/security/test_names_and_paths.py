"""Names that strangers choose, as paths: none leads anywhere, and files of a disk are called by numbers and by words of
ours. What lies where a file is to be written, and is none, is not written through.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest

from bkbox.base import ids
from bkbox.config.schema import bookie_id_problem
from bkbox.errors import BkboxError, DiskError, EncodingError, InvalidIdError
from bkbox.metadata.loglists import log_name
from bkbox.storage.disk.identity import DiskIdentity, read_identity, write_identity
from bkbox.storage.disk.lock import DiskLock
from bkbox.storage.files import RealFiles, write_atomic
from bkbox.storage.log.segment import parse_segment_file_name
from bkbox.wire.metadata import cookie, paths
from bkbox.wire.metadata.paths import PathLayout
from tests.bookie.bench import bookie_of, new_disk, open_store, process
from tests.harness import raw

ODD = {
    "slash": "a/b",
    "up": "../../etc/passwd",
    "up alone": "..",
    "here": ".",
    "absolute": "/etc/passwd",
    "nul": "a\0b",
    "4 KiB": "a" * 4096 + "/",
    "wide letters": "\uff41\uff42",
    "wide dots": "\uff0e\uff0e",
    "a slash that is none": "a\u2215b",
    "a slash laid over": "a\u0338b",
    "line": "a\nb",
    "escape": "\x1b[2J",
    "right to left": "a\u202eb",
    "half a character": "\ud800",
    "blank": "a b",
    "nothing": "",
}
NUMBERS = {
    "wide": "\uff11\uff12",
    "arabic": "\u0661\u0662",
    "superscript": "1\u00b2",
    "underscore": "1_2",
    "plus": "+12",
    "blank": " 12",
    "line": "12\n",
    "hexadecimal": "0xc",
    "many": "1" * 5000,
    "fraction": "1.0",
    "huge": "9223372036854775808",
    "negative": "-1",
    **ODD,
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_names_that_are_none(text: str) -> None:
    """Of others' bookies '.' and '..' are taken, as BookKeeper takes them: paths are made of nobody's but one's own."""
    problem = bookie_id_problem(text)
    assert problem is not None
    assert problem.isprintable()
    with pytest.raises(InvalidIdError) as found:
        log_name(text)
    assert str(found.value).isprintable()
    if text not in (".", ".."):
        with pytest.raises(InvalidIdError):
            ids.bookie_id(text)


@pytest.mark.parametrize("text", NUMBERS.values(), ids=NUMBERS)
@pytest.mark.parametrize("check", [ids.ledger_id, ids.entry_id])
def test_numbers_that_are_none(check: Callable[[str], int], text: str) -> None:
    with pytest.raises(InvalidIdError) as found:
        check(text)
    assert str(found.value).isprintable()
    assert len(str(found.value)) < 500


@pytest.mark.parametrize("text", NUMBERS.values(), ids=NUMBERS)
def test_paths_of_a_metadata_store(text: str) -> None:
    for layout in PathLayout:
        for path in (f"/l/L{text}", f"/l/{text}", f"/l/00/{text}/L1", f"/l/../L{text}"):
            if "//" in path:
                continue  # which no store has
            with pytest.raises(EncodingError):
                paths.ledger_of_path("/l", layout, path)
    with suppress(EncodingError):
        assert str(paths.ledger_of_underreplicated(f"/l/{text}/urL12")) == "12"
    with pytest.raises(EncodingError):
        paths.ledger_of_underreplicated(f"/l/urL{text}")


@pytest.mark.parametrize("text", NUMBERS.values(), ids=NUMBERS)
def test_files_that_are_no_segments(text: str) -> None:
    for name in (f"{text}.log", f"00000000{text}.log", f"{text}/0000000001.log", f"../{text}.log"):
        assert parse_segment_file_name(name) is None or re.fullmatch("[0-9]{10}[.]log", name)


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_a_cluster_with_an_odd_instance_id(tmp_path: Path, text: str) -> None:
    """It is written into the cookie and the identity of a disk, where it can be nothing but a text."""
    with suppress(UnicodeEncodeError):  # which no store can hold
        text.encode()
        made = cookie.cookie_of("b:1", ["/j"], ["/d"], None, text)
        found = cookie.decode(cookie.encode(made))
        assert (found, found.instance_id) == (made, text or None)
        identity = DiskIdentity(UUID(int=1), "b:1", text)
        write_identity(RealFiles(), tmp_path, identity)
        assert read_identity(RealFiles(), tmp_path) == identity
        assert [each.name for each in tmp_path.iterdir()] == ["DISK"]


# ---- what files of a disk are called ----------------------------------------------------------------

CALLED = re.compile(
    r"[A-Z]+|entrylog(/[0-9]{10}\.(log|next))?|index|index/([A-Z]+(\.old)?|MANIFEST-[0-9]{6}|[0-9]{6}\.(log|ldb))"
)


def test_files_are_called_by_numbers_and_words_of_ours(tmp_path: Path) -> None:
    disk = new_disk(tmp_path)
    store = open_store(disk)
    frames = [raw.add_frame(ledger, 0, b"../../x") for ledger in (0, 7, 2**63 - 1)]
    process(bookie_of(store), *frames)
    store.close()
    names = {str(path.relative_to(disk)) for path in disk.rglob("*")}
    assert {"DISK", "entrylog/0000000001.log"} <= names
    assert not [name for name in names if not CALLED.fullmatch(name)]
    assert {path.name for path in tmp_path.iterdir()} == {disk.name}


# ---- links that somebody has planted ----------------------------------------------------------------


def planted(link: Path, folder: Path) -> Path:
    """A file of somebody else's, and a link to it in the place of ours."""
    victim = folder / "victim"
    victim.write_bytes(b"precious")
    link.symlink_to(victim)
    return victim


def test_a_small_file_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    victim = planted(tmp_path / "disk" / "VERSION.new", tmp_path)
    with pytest.raises(DiskError, match=r"VERSION\.new.*symbolic link"):
        write_atomic(RealFiles(), tmp_path / "disk" / "VERSION", b"ours")
    assert victim.read_bytes() == b"precious"


def test_a_small_file_that_is_a_link_is_not_read(tmp_path: Path) -> None:
    planted(tmp_path / "DISK", tmp_path)
    with pytest.raises(DiskError, match="symbolic link"):
        RealFiles().read_bytes(tmp_path / "DISK")
    with pytest.raises(DiskError, match="symbolic link"):
        RealFiles().open_read(tmp_path / "DISK")


def test_a_lock_that_is_a_link_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    victim = planted(tmp_path / "disk" / "LOCK", tmp_path)
    with pytest.raises(DiskError, match="symbolic link"):
        DiskLock(tmp_path / "disk")
    assert victim.read_bytes() == b"precious"


@pytest.mark.parametrize("there", [True, False], ids=["a file", "nothing"])
def test_a_segment_that_is_a_link_is_not_written(tmp_path: Path, there: bool) -> None:
    disk = new_disk(tmp_path)
    victim = planted(disk / "entrylog" / "0000000001.log", tmp_path)
    if not there:
        victim.unlink()
    with pytest.raises(BkboxError, match="symbolic link"):
        store = open_store(disk)
        process(bookie_of(store), raw.add_frame(1, 0, b"x"))
    assert victim.exists() == there
    assert not there or victim.read_bytes() == b"precious"
