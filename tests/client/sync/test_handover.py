"""Appends that are handed over to the loop's thread: their order, their bound, and what becomes of them at an end."""

from __future__ import annotations

import linecache
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import wait as wait_for_all
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from bkbox.base.ids import EntryId
from bkbox.client import sync
from bkbox.client.sync import handover, loop_thread
from bkbox.client.sync.handover import QUEUED_BYTES_MAX
from bkbox.errors import HandleClosedError, LedgerFencedError, PayloadTypeError
from tests.client.tinybookie import Bookies, bookies
from tests.harness.waiting import wait_for

WINDOW = {"window_bytes": 1000, "add_timeout_s": 60.0}


def test_they_keep_their_place_among_all_calls(tmp_path: Path) -> None:
    with bookies(tmp_path) as made, sync.connect(made.uri, **WINDOW) as client:
        with client.create_ledger() as writer:
            first = [writer.append_nowait(b"first") for _ in range(300)]
            assert writer.append(b"then") == 300
            assert all(future.done() for future in first)
            second = [writer.append_nowait(b"second") for _ in range(300)]
            assert writer.append_many([b"many"] * 3) == [601, 602, 603]
            third = [writer.append_nowait(b"third") for _ in range(300)]
        entries = list(client.open_ledger(writer.ledger_id))
        ids = [future.result(0) for future in (*first, *second, *third)]
        assert ids == [*range(300), *range(301, 601), *range(604, 904)]
        payloads = [b"first"] * 300 + [b"then"] + [b"second"] * 300 + [b"many"] * 3
        assert [entry.payload for entry in entries] == payloads + [b"third"] * 300


def test_with_ids_of_their_own(tmp_path: Path) -> None:
    with (
        bookies(tmp_path) as made,
        sync.connect(made.uri, **WINDOW) as client,
        client.create_ledger() as writer,
    ):
        futures = [writer.append_nowait(b"x", entry_id=entry) for entry in (1, 0, 2)]
        assert [future.result(30) for future in futures] == [1, 0, 2]


def test_those_of_many_threads(tmp_path: Path) -> None:
    with bookies(tmp_path) as made, sync.connect(made.uri) as client:
        with client.create_ledger() as writer:
            futures: list[list[Future[int]]] = [[] for _ in range(4)]

            def append(number: int) -> None:
                for _ in range(500):
                    futures[number].append(writer.append_nowait(b"%d" % number))

            threads = [threading.Thread(target=append, args=(number,)) for number in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
        entries = list(client.open_ledger(writer.ledger_id))
        for number, own in enumerate(futures):
            ids = [future.result(0) for future in own]
            assert ids == sorted(ids)
            assert ids == [entry.entry_id for entry in entries if entry.payload == b"%d" % number]


def test_no_more_is_queued_than_the_bound(tmp_path: Path) -> None:
    payload = bytes(10_000)
    with bookies(tmp_path) as made, sync.connect(made.uri, **WINDOW) as client:
        writer = client.create_ledger()
        hang(made)
        futures: list[Future[int]] = []
        thread = threading.Thread(
            target=lambda: [futures.append(writer.append_nowait(payload)) for _ in range(300)]
        )
        thread.start()
        wait_for(lambda: len(futures) * len(payload) > 0.9 * QUEUED_BYTES_MAX, "a full queue")
        thread.join(0.2)
        assert thread.is_alive(), "it waits for space"
        assert len(futures) * len(payload) <= QUEUED_BYTES_MAX + 10 * len(payload)
        release(made)
        thread.join(60)
        wait_for_all(futures, 60)
        assert [future.result(0) for future in futures] == [*range(300)]
        writer.close()


@pytest.mark.filterwarnings("ignore:the writer of ledger")
def test_what_is_queued_when_the_client_is_closed_fails(tmp_path: Path) -> None:
    with bookies(tmp_path) as made:
        with sync.connect(made.uri, **WINDOW) as client:
            writer = client.create_ledger()
            hang(made)
            futures = [writer.append_nowait(bytes(500)) for _ in range(50)]
        for future in futures:
            assert isinstance(future.exception(30), HandleClosedError)
        with pytest.raises(HandleClosedError):
            writer.append_nowait(b"late")


@pytest.mark.filterwarnings("ignore:the writer of ledger")
def test_what_other_threads_queue_while_the_client_is_closed_has_a_result(tmp_path: Path) -> None:
    with bookies(tmp_path) as made:
        futures: list[list[Future[EntryId]]] = [[] for _ in range(4)]
        for pause in (0.0, 0.001, 0.01, 0.05):
            with sync.connect(made.uri) as client:
                writer = client.create_ledger()

                def append(own: list[Future[EntryId]], to: sync.LedgerWriter = writer) -> None:
                    with suppress(HandleClosedError):
                        for _ in range(5000):
                            own.append(to.append_nowait(b"x"))

                threads = [threading.Thread(target=append, args=(own,)) for own in futures]
                for thread in threads:
                    thread.start()
                time.sleep(pause)
            for thread in threads:
                thread.join(10)
                assert not thread.is_alive()
        everything = [future for own in futures for future in own]
        assert not wait_for_all(everything, 10).not_done
        failures = [future.exception() for future in everything]
        assert all(failure is None or type(failure) is HandleClosedError for failure in failures)


def test_after_an_interrupt_at_any_line_the_next_append_is_taken(tmp_path: Path) -> None:
    files = (handover.__file__, loop_thread.__file__)
    with (
        bookies(tmp_path) as made,
        sync.connect(made.uri) as client,
        client.create_ledger() as writer,
    ):
        for lines in range(100):
            with interrupted_after(lines, files):
                writer.append_nowait(b"interrupted")
                break
            assert writer.append_nowait(b"after").result(10) >= 0
        assert lines > 10


class StruckError(Exception):
    """An interrupt."""


@contextmanager
def interrupted_after(lines: int, files: tuple[str, ...]) -> Iterator[None]:
    """Raise after this number of lines of these files, as a signal may; the block ends there."""
    left = lines

    def trace(frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        nonlocal left
        if frame.f_code.co_filename not in files:
            return None
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and "with " not in line:  # Python looks for no signal at the end of one
            left -= 1
            if left < 0:
                raise StruckError
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with suppress(StruckError):
            yield
    finally:
        sys.settrace(before)


def test_what_is_refused_is_refused_at_once_where_that_is_known(tmp_path: Path) -> None:
    with bookies(tmp_path) as made, sync.connect(made.uri) as client:
        writer = client.create_ledger()
        with pytest.raises(PayloadTypeError):
            writer.append_nowait("text")  # type: ignore[arg-type]
        with sync.connect(made.uri) as other:
            other.recover(writer.ledger_id)
        assert isinstance(writer.append_nowait(b"late").exception(30), LedgerFencedError)
        with pytest.raises(LedgerFencedError):
            writer.append_nowait(b"later")
        writer.abort()


def test_a_buffer_may_be_used_again(tmp_path: Path) -> None:
    with bookies(tmp_path) as made, sync.connect(made.uri) as client:
        buffer = bytearray(b"0")
        with client.create_ledger() as writer:
            for number in range(10):
                buffer[:] = b"%d" % number
                writer.append_nowait(buffer)  # type: ignore[arg-type]
        entries = list(client.open_ledger(writer.ledger_id))
        assert [int(entry.payload) for entry in entries] == [*range(10)]


def hang(made: Bookies) -> None:
    """From now on no request gets a response."""
    for bookie in made.bookies.values():
        bookie.hung = True


def release(made: Bookies) -> None:
    for bookie in made.bookies.values():
        made.loop.call_soon_threadsafe(bookie.release)
