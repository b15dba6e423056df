"""Input cut into entries: nothing is lost, nothing is added."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkbox.base.limits import FRAME_BYTES_MAX
from bkbox.cli.lib.entry_input import batches, chunks, lines
from bkbox.errors import CallerError, EntryTooLargeError

BLOCKS = st.lists(st.binary(min_size=1, max_size=9) | st.sampled_from([b"\n", b"a\n\nb", b"\r\n"]))


def reader(blocks: list[bytes]) -> Callable[[int], bytes]:
    """A read() that gives these blocks, one a call, and then the end."""
    left = iter(blocks)
    return lambda _size: next(left, b"")


@given(BLOCKS)
def test_lines_keep_every_byte_and_end_where_lines_end(blocks: list[bytes]) -> None:
    entries = [entry for batch in lines(reader(blocks)) for entry in batch]
    whole = b"".join(blocks)
    assert b"".join(entries) == whole
    assert all(entry.endswith(b"\n") for entry in entries[:-1])
    assert all(entry and entry.count(b"\n") <= 1 for entry in entries)


@given(BLOCKS, st.integers(1, 7))
def test_chunks_keep_every_byte_and_have_the_size(blocks: list[bytes], size: int) -> None:
    entries = [entry for batch in chunks(reader(blocks), size) for entry in batch]
    assert b"".join(entries) == b"".join(blocks)
    assert all(len(entry) == size for entry in entries[:-1])
    assert all(0 < len(entry) <= size for entry in entries)


def test_a_line_without_end_is_refused_before_it_fills_the_memory() -> None:
    def read(size: int) -> bytes:
        nonlocal given_bytes
        given_bytes += size
        return bytes(size)

    given_bytes = 0
    with pytest.raises(EntryTooLargeError, match="--chunk"):
        list(lines(read))
    assert given_bytes <= 2 * FRAME_BYTES_MAX


def collect(files: list[Path], chunk: int | None) -> list[bytes]:
    async def go() -> list[bytes]:
        return [entry async for batch in batches(files, chunk) for entry in batch]

    return asyncio.run(go())


def test_an_entry_never_spans_two_files(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"one\ntwo")
    second.write_bytes(b"three\n")
    assert collect([first, second], None) == [b"one\n", b"two", b"three\n"]
    assert collect([first, second], 4) == [b"one\n", b"two", b"thre", b"e\n"]


def test_a_file_that_cannot_be_read_is_an_error_after_what_came_before(tmp_path: Path) -> None:
    good = tmp_path / "good"
    good.write_bytes(b"x\n")
    seen: list[bytes] = []

    async def go() -> None:
        async for batch in batches([good, tmp_path / "missing"], None):
            seen.extend(batch)

    with pytest.raises(CallerError, match=r"cannot read .*missing: No such file"):
        asyncio.run(go())
    assert seen == [b"x\n"]


def test_who_stops_early_leaves_no_thread_behind(tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.write_bytes(b"line\n" * 2_000_000)

    async def go() -> None:
        async with aclosing(batches([big], None)) as source:
            async for _ in source:
                break
        for thread in threading.enumerate():
            if thread.name == "input":
                await asyncio.to_thread(thread.join)

    asyncio.run(go())
