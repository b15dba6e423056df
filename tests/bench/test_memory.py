"""Page cache that fills free memory: what is read, how much of it, and that it takes no room."""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bkbox.bench import memory
from bkbox.bench.memory import PageCache
from bkbox.bench.server import temporary_folder
from tests.harness.java import CHECKOUT

STEP = 256 << 20
PAGE = 4096


@pytest.fixture
def folder() -> Iterator[Path]:
    """On a disk: in memory holes are no pages."""
    with temporary_folder(CHECKOUT) as root:
        yield root


def test_it_reads_a_step_at_least_and_goes_on_where_it_ended(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = folder / "meminfo"
    figures.write_text(f"MemTotal: {2 * STEP >> 10} kB\nMemFree: {STEP >> 10} kB\n")
    monkeypatch.setattr(memory, "_MEMINFO", figures)  # nothing ever falls there
    free = shutil.disk_usage(folder).free
    with PageCache(folder) as page_cache:
        assert [path.name for path in folder.iterdir()] == ["meminfo"]
        file = page_cache._file.fileno()
        assert not is_cached(file, 0)
        page_cache.fill()
        assert is_cached(file, 0)
        assert is_cached(file, STEP - PAGE)
        assert not is_cached(file, 2 * STEP - PAGE)  # behind what is read ahead
        page_cache.fill()
        assert is_cached(file, 2 * STEP - PAGE)
        assert os.fstat(file).st_blocks == 0
    assert shutil.disk_usage(folder).free > free - STEP // 2


def test_a_system_that_does_not_say_its_memory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = folder / "meminfo"
    figures.write_text("MemTotal: 1000000 kB\n")
    monkeypatch.setattr(memory, "_MEMINFO", figures)
    with PageCache(folder) as page_cache, pytest.raises(OSError, match=r"meminfo has no MemFree"):
        page_cache.fill()


def is_cached(file: int, offset: int) -> bool:
    """True if a page of a file is in the page cache; see mincore(2)."""
    with mmap.mmap(file, 0) as pages:
        first = ctypes.c_char.from_buffer(pages, offset)
        found = (ctypes.c_ubyte * 1)()
        status = ctypes.CDLL(None).mincore(ctypes.c_void_p(ctypes.addressof(first)), PAGE, found)
        del first
    assert status == 0
    return bool(found[0] & 1)
