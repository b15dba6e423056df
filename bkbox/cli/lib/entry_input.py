"""Splits standard input or files into entries, and defines the options for that.

Reading blocks, so a thread does it. The thread is a daemon that reads unbuffered: Ctrl-C at a
terminal then ends the command although the thread still waits for input.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

import click

from bkbox.base.limits import FRAME_BYTES_MAX
from bkbox.errors import CallerError, EntryTooLargeError

READ_BYTES = 1 << 20
BATCH_ENTRIES = 1024
"""Maximum entries of a batch; bounds how long it keeps the event loop busy: responses are read between two batches."""
BATCHES_AHEAD = 4


def input_options(made: str) -> Callable[[Any], Any]:
    """``--file`` and ``--chunk``, passed as ``files`` and ``chunk``; ``made``: what each line becomes."""

    def add(command: Any) -> Any:
        chunk = click.option(
            "--chunk",
            type=click.IntRange(min=1),
            metavar="BYTES",
            help=f"Make {made} of so many bytes instead of each line.",
        )
        file = click.option(
            "--file",
            "files",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            multiple=True,
            metavar="FILE",
            help="Read this instead of standard input; repeatable.",
        )
        return file(chunk(command))

    return add


async def batches(files: Sequence[Path], chunk: int | None) -> AsyncGenerator[list[bytes], None]:
    """Entries as they arrive, in batches: lines with their line ends, or ``chunk`` bytes each.

    An entry never spans two files. Raises EntryTooLargeError, and CallerError for a file that
    cannot be read.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[list[bytes] | CallerError | None] = asyncio.Queue()
    slots = threading.Semaphore(BATCHES_AHEAD)
    running = True

    def put(item: list[bytes] | CallerError | None) -> None:
        with suppress(RuntimeError):  # the event loop is closed: the command has ended
            loop.call_soon_threadsafe(queue.put_nowait, item)

    def feed() -> None:
        try:
            for batch in _blocking_batches(files, chunk):
                put(batch)
                slots.acquire()
                if not running:
                    return
        except CallerError as error:
            put(error)
        else:
            put(None)

    threading.Thread(target=feed, name="input", daemon=True).start()
    try:
        while (item := await queue.get()) is not None:
            if isinstance(item, CallerError):
                raise item
            yield item
            slots.release()
    finally:
        running = False
        slots.release()


def _blocking_batches(files: Sequence[Path], chunk: int | None) -> Iterator[list[bytes]]:
    for file in files or (0,):
        try:
            with open(file, "rb", buffering=0, closefd=file != 0) as stream:
                read = cast(BinaryIO, stream).read
                yield from lines(read) if chunk is None else chunks(read, chunk)
        except OSError as error:
            name = file or "standard input"
            raise CallerError(f"cannot read {name}: {error.strerror}") from error


def lines(read: Callable[[int], bytes]) -> Iterator[list[bytes]]:
    """Complete lines of the data that ``read(n)`` returns; the last may lack its line end."""
    rest = b""
    while block := read(READ_BYTES):
        *whole, rest = (rest + block).split(b"\n")
        for at in range(0, len(whole), BATCH_ENTRIES):
            yield [line + b"\n" for line in whole[at : at + BATCH_ENTRIES]]
        if len(rest) > FRAME_BYTES_MAX:
            raise EntryTooLargeError(
                f"a line is longer than {FRAME_BYTES_MAX} bytes: use --chunk for such input"
            )
    if rest:
        yield [rest]


def chunks(read: Callable[[int], bytes], size: int) -> Iterator[list[bytes]]:
    """Pieces of ``size`` bytes of the data that ``read(n)`` returns; the last may be shorter."""
    rest = b""
    while block := read(READ_BYTES):
        data = rest + block
        end = len(data) - len(data) % size
        whole = [data[at : at + size] for at in range(0, end, size)]
        for at in range(0, len(whole), BATCH_ENTRIES):
            yield whole[at : at + BATCH_ENTRIES]
        rest = data[end:]
    if rest:
        yield [rest]
