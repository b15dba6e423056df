"""Arguments are checked at the call, and a wrong one disturbs no other call; what ends a writer ends what waits."""

from __future__ import annotations

import asyncio
import threading
import typing
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import bkbox
from bkbox.base.ids import EntryId, LedgerId
from bkbox.client import ClientOptions, ConnectOptions, DigestType, VerifiedEntry, sync
from bkbox.client.connection.adds import AddPacker
from bkbox.client.log import Log, LogOptions, Position
from bkbox.client.log import writer as logwriter
from bkbox.errors import (
    BkboxError,
    BugError,
    ConfigError,
    EntryIdError,
    HandleClosedError,
    InvalidArgumentError,
    InvalidIdError,
    NoSuchLedgerError,
    PayloadTypeError,
    SequenceError,
    WrongLoopError,
)
from tests.client.tinybookie import bookies, cluster

ANY: Any = None
"""For what type checkers would refuse."""


def go(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 60))


def wrong(value: object) -> Any:
    return value


@pytest.mark.parametrize("wrong_time", [1.5, "1", 2**63, -(2**63) - 1, True, float("nan"), b"1"])
def test_a_time_that_is_none(tmp_path: Path, wrong_time: Any) -> None:
    async def test() -> None:
        async with (
            cluster(tmp_path) as made,
            made.client() as client,
            await Log(client, "orders").open_writer() as writer,
        ):
            valid = [writer.append_nowait(b"%d" % number) for number in range(6)]
            for use in (
                lambda: writer.append(b"x", timestamp_ms=wrong_time),
                lambda: writer.append_many([b"x"], timestamps_ms=[wrong_time]),
                lambda: writer.append_once(b"x", "w", 1, timestamp_ms=wrong_time),
            ):
                with pytest.raises(InvalidArgumentError, match="timestamp_ms"):
                    await use()
            with pytest.raises(InvalidArgumentError, match="timestamp_ms"):
                writer.append_nowait(b"x", timestamp_ms=wrong_time)
            assert len(await asyncio.gather(*valid)) == 6
            assert await writer.append_once(b"y", "w", 1) is not None, "the number is free still"

    go(test())


@pytest.mark.parametrize(
    ("writer_id", "sequence"),
    [("w", 2.5), ("w", 2**63), ("w", -1), ("w", "1"), ("w", True), ("", 1), (5, 1), ("\ud800", 1)],
)
def test_a_sequence_number_that_is_none(tmp_path: Path, writer_id: Any, sequence: Any) -> None:
    async def test() -> None:
        async with (
            cluster(tmp_path) as made,
            made.client() as client,
            await Log(client, "orders").open_writer() as writer,
        ):
            valid = [writer.append_nowait(b"x") for _ in range(6)]
            with pytest.raises(SequenceError):
                await writer.append_once(b"x", writer_id, sequence)
            await asyncio.gather(*valid)

    go(test())


def test_a_clock_that_tells_no_time(tmp_path: Path) -> None:
    async def test() -> None:
        options = LogOptions(clock_ms=wrong(lambda: 1.5))
        async with (
            cluster(tmp_path) as made,
            made.client() as client,
            await Log(client, "orders").open_writer(options) as writer,
        ):
            valid = writer.append_nowait(b"x", timestamp_ms=1)
            with pytest.raises(InvalidArgumentError, match=r"clock_ms 1\.5: give a whole"):
                await writer.append(b"x")
            await valid

    go(test())


def test_fewer_times_than_records(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            cluster(tmp_path) as made,
            made.client() as client,
            await Log(client, "orders").open_writer() as writer,
        ):
            with pytest.raises(InvalidArgumentError, match="1 times for 2 records"):
                await writer.append_many([b"a", b"b"], timestamps_ms=[1])
            with pytest.raises(InvalidArgumentError, match="ends before the records do"):
                await writer.append_many(iter([b"a", b"b"]), timestamps_ms=iter([1]))
            await writer.append_many([], timestamps_ms=[])

    go(test())


# ---- what ends a writer -----------------------------------------------------------------------------


def test_a_batch_of_a_log_that_cannot_be_sent_fails_all_that_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault that no check foresees."""

    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            writer = await Log(client, "orders").open_writer(LogOptions(batch_bytes=50))
            await writer.append(b"before")

            def broken(*_: object) -> bytes:
                raise MemoryError("planted")

            monkeypatch.setattr(logwriter, "encode_records", broken)
            waiting = [writer.append_nowait(bytes(40)) for _ in range(6)]
            once = asyncio.ensure_future(writer.append_once(b"x", "w", 1))
            for found in await asyncio.gather(*waiting, once, return_exceptions=True):
                assert isinstance(found, BugError)
                assert "planted" in str(found)
            for use in (writer.flush, writer.close, lambda: writer.append(b"after")):
                with pytest.raises(BugError, match="planted"):
                    await use()
            await writer.abort()

    go(test())


def test_a_batch_of_a_ledger_that_cannot_be_sent_fails_all_that_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            writer, other = await client.create_ledger(), await client.create_ledger()
            await writer.append(b"before")
            pack = AddPacker.pack

            def broken(self: AddPacker, run: Any) -> Any:
                if run.payloads[0] == b"bad":
                    raise MemoryError("planted")
                return pack(self, run)

            monkeypatch.setattr(AddPacker, "pack", broken)
            waiting = [writer.append_nowait(b"bad") for _ in range(3)]
            beside = other.append_nowait(b"good")
            for found in await asyncio.gather(*waiting, return_exceptions=True):
                assert isinstance(found, BugError)
                assert "planted" in str(found)
            assert await beside == 0, "of the same turn"
            for use in (
                lambda: writer.append(b"x"),
                writer.force,
                writer.close,
                lambda: writer.append_many([b"x"]),
            ):
                with pytest.raises(BugError, match="planted"):
                    await use()
            await writer.abort()
            await other.close()

    go(test())


def test_entries_with_ids_that_are_none(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            cluster(tmp_path) as made,
            made.client() as client,
            await client.create_ledger() as writer,
        ):
            for wrong_id in (1.5, "1", True, -1, 2**63, b"", [0]):
                with pytest.raises(InvalidIdError):
                    await writer.append(b"x", entry_id=wrong(wrong_id))
                with pytest.raises(InvalidIdError):
                    writer.append_nowait(b"x", entry_id=wrong(wrong_id))
                with pytest.raises(InvalidIdError):
                    await writer.drain(entry_id=wrong(wrong_id))
            assert await writer.append(b"x", entry_id=0) == 0
            with pytest.raises(EntryIdError):
                await writer.append(b"x", entry_id=0)

    go(test())


# ---- arguments of everything else -------------------------------------------------------------------


def test_ids_and_arguments_of_calls(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            async with await client.create_ledger(ledger=5) as writer:
                await writer.append_many([b"a", b"b"])
            reader = await client.open_ledger(5)
            log = Log(client, "orders")
            await (await log.open_writer()).close()
            uses: list[tuple[type[BkboxError], Callable[[Any], Any], list[object]]] = [
                (InvalidIdError, use, ["5", 5.5, 5.0, True, None, -1, 2**63, b"5"])
                for use in (
                    client.open_ledger,
                    client.delete_ledger,
                    client.recover,
                    client.inspect_ledger,
                    client.metadata,
                    reader.read_entry,
                    lambda value: reader.read_batch(value, 1),
                    log.forget,
                )
            ]
            uses += [
                (InvalidArgumentError, use, values)
                for use, values in (
                    (lambda value: client.open_ledger(5, value), ["x", 5]),
                    (lambda value: client.open_ledger(5, recovery=value), [1, "no", None]),
                    (lambda value: client.open_ledger(5, digest_type=value), ["CRC32C", 1]),
                    (lambda value: reader.read_batch(0, value), ["1", 1.5, -1, None]),
                    (lambda value: reader.read_batch(0, 1, value), ["1", 1.5, -1]),
                    (
                        lambda value: reader.read_last_add_confirmed_and_entry(5, value),
                        ["1", None, -1, float("nan"), 1e300],
                    ),
                    (lambda value: reader.read_last_add_confirmed(persisted=value), [1, None]),
                    (log.open_writer, [{}, {"batch_bytes": 5}, 5]),
                    (log.last, ["1", -1, None, 1.5]),
                    (log.truncate, ["1:2", (1, 2), None]),
                    (lambda value: writer.append_many(value), [5, None]),
                    (lambda value: writer.close(durable=value), [1, None]),
                )
            ]
            for error, use, values in uses:
                for value in values:
                    with pytest.raises(error) as caught:
                        await use(wrong(value))
                    assert str(caught.value), (use, value)
            for make in (
                lambda: client.watch(wrong("5")),
                lambda: reader.read(wrong("0")),
                lambda: reader.read(0, wrong(1.5)),
                lambda: reader.tail(wrong(None)),
                lambda: reader.read_unconfirmed(0, wrong("1")),
                lambda: log.read(wrong("1:2")),
                lambda: log.tail(Position(LedgerId(-1), EntryId(0))),
            ):
                with pytest.raises((InvalidIdError, InvalidArgumentError)):
                    make()  # at the call, not when it is iterated over
            for payload in ("text", 5, None):
                with pytest.raises(PayloadTypeError):
                    await (await client.create_ledger()).append(wrong(payload))
            assert (await client.metadata(5)).last_entry == 1, "nothing was deleted"

    with pytest.warns(ResourceWarning):
        go(test())


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    async def connect(**options: Any) -> None:
        async with bkbox.connect(f"sqlite:{tmp_path}/none.db", **options):
            pass

    for options, told in (
        ({"read_timeout": 3}, ["did you mean 'read_timeout_s'"]),
        ({"window_bytes": "8m"}, ["window_bytes = '8m': give a whole number"]),
        (
            {"add_timeout_s": 0, "read_timeout_s": -1, "protokol": "v3", "tls": "on"},
            ["add_timeout_s", "read_timeout_s", "did you mean 'protocol'", "tls 'on'"],
        ),
        ({"read_timeout_s": float("nan"), "batch_reads": 1}, ["read_timeout_s", "batch_reads"]),
        ({"window_bytes": True, "closest_to": 5}, ["window_bytes", "closest_to"]),
        ({"auth": "token", "tls_key_file": "key"}, ["auth_secret_file", "belong together"]),
    ):
        with pytest.raises(ConfigError) as caught:
            asyncio.run(connect(**wrong(options)))
        assert len(caught.value.problems) == len(told)
        for text in told:
            assert text in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        LogOptions(roll_bytes=wrong("1g"), compression=wrong(1), linger_s=-1)
    assert len(caught.value.problems) == 3

    async def create() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            with pytest.raises(ConfigError) as caught:
                await client.create_ledger(
                    wrong("3"), password=wrong("x"), custom=wrong({5: 5}), deferred_sync=wrong(1)
                )
            assert len(caught.value.problems) >= 4

    go(create())


def test_options_of_connect_are_those_of_the_client() -> None:
    assert typing.get_type_hints(ConnectOptions) == typing.get_type_hints(ClientOptions)


def test_exports() -> None:
    from bkbox.client import Entry

    assert Entry is VerifiedEntry
    assert DigestType.CRC32C in DigestType


# ---- a creation that is cancelled -------------------------------------------------------------------


def test_a_cancelled_creation_leaves_no_ledger(tmp_path: Path) -> None:
    """Cancelled at each of its steps."""

    async def test() -> None:
        async with cluster(tmp_path) as made:
            kept, was_cancelled = set(), 0
            async with made.client() as client:
                for steps in range(60):
                    creating = asyncio.ensure_future(client.create_ledger())
                    for _ in range(steps):
                        # So that a thread that was asked something has answered now and then.
                        await asyncio.sleep(0.0005 if steps % 2 else 0)
                    creating.cancel()
                    try:
                        writer = await creating
                    except asyncio.CancelledError:
                        was_cancelled += 1
                    else:
                        kept.add(writer.ledger_id)
                        await writer.close()
                assert was_cancelled > 10
            async with made.client() as client:
                assert {ledger async for ledger in client.ledgers()} == kept

    go(test())


def test_a_ledger_of_somebody_else_is_not_taken_back(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            await (await client.create_ledger(ledger=7)).close()
            for steps in range(20):
                creating = asyncio.ensure_future(client.create_ledger(ledger=7))
                for _ in range(steps):
                    await asyncio.sleep(0)
                creating.cancel()
                await asyncio.gather(creating, return_exceptions=True)
            await client.close()
            async with made.client() as other:
                assert (await other.metadata(7)).ledger_id == 7
                with pytest.raises(NoSuchLedgerError):
                    await other.metadata(8)

    go(test())


# ---- the synchronous client -------------------------------------------------------------------------


def test_time_outs_of_blocking_calls(tmp_path: Path) -> None:
    with bookies(tmp_path) as made, sync.connect(made.uri) as client:
        writer = client.create_ledger()
        for value in ("5", float("nan"), True, b"", [1]):
            with pytest.raises(InvalidArgumentError, match="timeout_s"):
                writer.append(b"x", timeout_s=wrong(value))
        assert writer.append(b"x", timeout_s=float("inf")) == 0
        with pytest.raises(TimeoutError):
            writer.append(b"x", timeout_s=-1)
        writer.abort()
        with pytest.raises(InvalidIdError):
            client.open_ledger(writer.ledger_id).read(wrong("0"))


def test_a_call_of_the_clients_own_thread(tmp_path: Path) -> None:
    """It would wait for itself."""
    with bookies(tmp_path) as made, sync.connect(made.uri) as client:
        said: list[BaseException] = []
        with client.create_ledger() as writer:

            def again(_: object) -> None:
                try:
                    writer.append(b"y")
                except WrongLoopError as error:
                    said.append(error)

            writer.append_nowait(b"x").add_done_callback(again)
            writer.append(b"z")
        assert "would wait for itself" in str(said[0])


@pytest.mark.filterwarnings("ignore:the writer of:ResourceWarning")
def test_a_thread_that_waits_when_the_client_ends(tmp_path: Path) -> None:
    ended: list[BaseException | None] = []

    def until_it_ends(use: Callable[[], Any]) -> None:
        try:
            use()
        except Exception as error:  # noqa: BLE001 - it is looked at below
            ended.append(error)
        else:
            ended.append(None)

    with bookies(tmp_path) as made:
        with sync.connect(made.uri) as client:
            writer = client.create_ledger()
            writer.append(b"x")
            writer.append(b"y")
            tail = client.open_ledger(writer.ledger_id, recovery=False).tail()
            assert next(tail).payload == b"x"
            watch = client.watch(writer.ledger_id)
            next(watch)
            log = client.log("orders").open_writer()
            log.append(b"x")
            for bookie in made.bookies.values():
                bookie.hung = True
            uses = (
                lambda: next(tail),
                lambda: next(watch),
                lambda: writer.append(b"z"),
                lambda: log.append(b"z"),
                writer.append_nowait(b"z").result,
            )
            threads = [threading.Thread(target=until_it_ends, args=(use,)) for use in uses]
            for thread in threads:
                thread.start()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
        assert len(ended) == len(uses)
        for error in ended:
            assert error is None or isinstance(error, (BkboxError, StopIteration)), error
        assert any(isinstance(error, HandleClosedError) for error in ended)
