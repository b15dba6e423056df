"""The client for programs without an event loop: the same names and the same results."""

from __future__ import annotations

import asyncio
import gc
import inspect
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import wait as wait_for_all
from pathlib import Path
from typing import Any

import pytest

from bkbox import client as asynchronous
from bkbox.client import log as asynchronous_log
from bkbox.client import sync
from bkbox.errors import (
    EntryTooLargeError,
    HandleClosedError,
    NoSuchEntryError,
    NotLeaderError,
)
from tests.client.tinybookie import bookies


def test_ledgers(tmp_path: Path) -> None:
    with bookies(tmp_path) as made, sync.connect(made.uri, add_timeout_s=30) as client:
        with client.create_ledger(custom={"app": b"x"}) as writer:
            assert writer.append(b"a") == 0
            assert writer.append_many([b"b", b"c"]) == [1, 2]
            futures = [writer.append_nowait(b"%d" % number) for number in range(200)]
            wait_for_all(futures, 30)
            assert [future.result() for future in futures] == list(range(3, 203))
            assert writer.force() == 202
            assert (writer.last_add_confirmed, writer.ledger_id) == (202, 0)
            assert (writer.deferred_sync, writer.failure) == (False, None)
            with pytest.raises(EntryTooLargeError):
                writer.append(bytes(writer.payload_bytes_max + 1))
            assert writer.close().last_entry == writer.close(durable=True).last_entry == 202
        reader = client.open_ledger(0)
        assert reader.is_closed
        assert [entry.payload for entry in reader.read(0, 2)] == [b"a", b"b", b"c"]
        assert len(list(reader)) == 203
        assert reader.read_entry(1).payload == b"b"
        last = reader.read_last()
        assert last is not None
        assert last.entry_id == reader.last_add_confirmed == 202
        assert [entry.entry_id for entry in reader.read_batch(5, 3)] == [5, 6, 7]
        assert [entry.entry_id for entry in reader.read_unconfirmed(200, 202)] == [200, 201, 202]
        with pytest.raises(NoSuchEntryError):
            reader.read_entry(203)
        assert dict(client.metadata(0).custom) == {"app": b"x"}
        assert list(client.ledgers()) == [0]
        assert client.health() == {}
        assert client.recover(0).last_entry == 202
        watch = client.watch(0)
        assert next(watch) is not None
        client.delete_ledger(0)
        assert next(watch) is None
        watch.close()  # type: ignore[attr-defined]
    with pytest.raises(HandleClosedError):
        client.metadata(0)
    with pytest.raises(HandleClosedError):
        reader.read_entry(0)


def test_a_call_may_have_a_time_out(tmp_path: Path) -> None:
    with (
        bookies(tmp_path) as made,
        sync.connect(made.uri, add_timeout_s=30) as client,
        client.create_ledger() as writer,
    ):
        for bookie in made.bookies.values():
            bookie.hung = True
        with pytest.raises(TimeoutError):
            writer.append(b"a", timeout_s=0.1)
        for bookie in made.bookies.values():
            made.loop.call_soon_threadsafe(bookie.release)
        assert writer.append(b"b", timeout_s=30) == 1


@pytest.fixture
def dropped_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[threading.Thread]]:
    """The thread that drops each task, as soon as it has."""
    threads: list[threading.Thread] = []
    kept: set[weakref.ref[asyncio.Task[Any]]] = set()
    create_task = asyncio.BaseEventLoop.create_task

    def create(*arguments: Any, **options: Any) -> asyncio.Task[Any]:
        task = create_task(*arguments, **options)
        kept.add(weakref.ref(task, lambda _: threads.append(threading.current_thread())))
        return task

    monkeypatch.setattr(asyncio.BaseEventLoop, "create_task", create)
    gc.disable()  # it runs in any thread
    try:
        yield threads
    finally:
        gc.enable()


def test_the_callers_thread_drops_no_task(
    tmp_path: Path, dropped_in: list[threading.Thread]
) -> None:
    with bookies(tmp_path) as made:
        with sync.connect(made.uri) as client:
            with client.create_ledger() as writer:
                writer.append_many([b"x"] * 100)
            reader = client.open_ledger(writer.ledger_id)
            for _ in range(10):
                assert len(list(reader.read())) == 100
                assert list(client.ledgers()) == [writer.ledger_id]
                assert next(iter(reader.read())).entry_id == 0
                assert reader.read_entry(99).entry_id == 99
                with pytest.raises(NoSuchEntryError):
                    reader.read_entry(100)
        assert threading.main_thread() not in dropped_in
        assert len(dropped_in) > 100


def test_tail_and_threads(tmp_path: Path) -> None:
    with bookies(tmp_path) as made, sync.connect(made.uri) as client:
        writer = client.create_ledger()
        seen: list[bytes] = []
        reader = client.open_ledger(writer.ledger_id, recovery=False)
        thread = threading.Thread(target=lambda: seen.extend(e.payload for e in reader.tail()))
        thread.start()
        appenders = [
            threading.Thread(target=lambda: [writer.append(b"x") for _ in range(20)])
            for _ in range(4)
        ]
        for appender in appenders:
            appender.start()
        for appender in appenders:
            appender.join(30)
        writer.close()
        thread.join(30)
        assert seen == [b"x"] * 80


def test_what_is_not_confirmed_is_waited_for(tmp_path: Path) -> None:
    with (
        bookies(tmp_path) as made,
        sync.connect(made.uri) as client,
        client.create_ledger() as writer,
    ):
        assert (writer.append(b"a"), writer.append(b"b")) == (0, 1)
        reader = client.open_ledger(writer.ledger_id, recovery=False)
        assert reader.read_last_add_confirmed_and_entry(1, 0.01) == (0, None), "the time was up"
        assert [entry.payload for entry in reader.read_unconfirmed(0, 1)] == [b"a", b"b"]
        thread = threading.Timer(0.05, writer.append, [b"c"])
        thread.start()
        lac, entry = reader.read_last_add_confirmed_and_entry(1, 30)
        thread.join()
        assert entry is not None
        assert (lac, entry.payload) == (1, b"b")


def test_logs(tmp_path: Path) -> None:
    with bookies(tmp_path) as made, sync.connect(made.uri) as client:
        log = client.log("orders")
        writer = log.open_writer()
        first = writer.append(b"a", timestamp_ms=7)
        assert writer.append_once(b"b", "w", 1) == writer.append_once(b"b", "w", 1)
        assert writer.last_sequence("w") == 1
        writer.append_many([b"c", b"d"], timestamps_ms=[1, 2])
        writer.flush()
        tail = log.tail()
        assert [next(tail).payload for _ in range(4)] == [b"a", b"b", b"c", b"d"]
        tail.close()  # type: ignore[attr-defined]
        assert [record.payload for record in log.last(2)] == [b"c", b"d"]
        assert (log.name, writer.name, writer.failure) == ("orders", "orders", None)
        with log.open_writer() as other:
            assert other.epoch == 2
            with pytest.raises(NotLeaderError):
                writer.append(b"late")
            with pytest.raises(NotLeaderError):
                writer.close()
            assert isinstance(writer.failure, NotLeaderError)
            with pytest.raises(NotLeaderError):
                writer.append_nowait(b"late")
            writer.abort()
        assert [record.payload for record in log] == [b"a", b"b", b"c", b"d"]
        assert [record.timestamp_ms for record in log.read(first)][::2] == [7, 1]
        assert log.info().epoch == 2
        log.truncate(log.end())
        assert list(log.read()) == []
        log.delete()


def test_records_may_be_handed_over(tmp_path: Path) -> None:
    """What waits for room is the thread, which holds nobody else up."""
    options = asynchronous_log.LogOptions(batch_bytes=100, window_bytes=200)
    with bookies(tmp_path) as made, sync.connect(made.uri) as client:
        with client.log("orders").open_writer(options) as writer:
            futures = [writer.append_nowait(b"%d" % n, timestamp_ms=n) for n in range(200)]
            assert not futures[-1].cancel(), "it cannot be taken back"
            wait_for_all(futures, 30)
            positions = [future.result() for future in futures]
            assert positions == sorted(positions)
        assert [int(record.payload) for record in client.log("orders")] == [*range(200)]


@pytest.mark.parametrize(
    ("facade", "original", "lacks"),
    [
        (
            sync.Client,
            asynchronous.Client,
            "close force_close inspect_ledger placer pool rng run_in_background store",
        ),
        (
            sync.LedgerWriter,
            asynchronous.LedgerWriter,
            "drain was_abandoned",
        ),
        (
            sync.LedgerReader,
            asynchronous.LedgerReader,
            "digests read_batches read_columns",
        ),
        (sync.Log, asynchronous_log.Log, ""),
        (sync.LogWriter, asynchronous_log.LogWriter, "drain"),
    ],
)
def test_names_and_parameters_are_the_same(facade: type, original: type, lacks: str) -> None:
    there = {name for name in dir(original) if not name.startswith("_")}
    assert there - {*dir(facade)} == {*lacks.split()}
    for name, call in vars(facade).items():
        if name.startswith("_") or name in ("log",):
            continue
        other = getattr(original, name)
        if isinstance(call, property):
            assert isinstance(other, property)
            continue
        ours = {key for key in inspect.signature(call).parameters if key != "timeout_s"}
        theirs = set(inspect.signature(other).parameters)
        assert ours <= theirs, f"{name}: {ours - theirs}"
