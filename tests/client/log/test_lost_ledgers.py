"""A ledger of a log that somebody deleted by hand: who says so, and the way out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bkbox.base.ids import EntryId, LedgerId
from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.main import main
from bkbox.client import sync
from bkbox.client.log import Log, LogOptions, Position
from bkbox.errors import (
    LedgerExistsError,
    LogLedgerLostError,
    NoSuchLedgerError,
    NoSuchLogError,
    NotLeaderError,
)
from tests.client.tinybookie import Bookies, bookies, cluster


def go(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 120))


async def filled(log: Log, ledgers: int) -> tuple[LedgerId, ...]:
    """A log of so many ledgers, each of a writer of its own, with two records each."""
    for number in range(ledgers):
        async with await log.open_writer() as writer:
            for record in range(2):
                await writer.append_once(b"%d.%d" % (number, record), "w", 2 * number + record)
    return (await log.info()).ledgers


async def payloads(log: Log, start: Position | None = None) -> list[bytes]:
    return [record.payload async for record in log.read(start)]


def test_one_in_the_middle(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            log = Log(client, "orders")
            ledgers = await filled(log, 4)
            assert await log.lost() == []
            await client.delete_ledger(ledgers[1])
            said = rf"ledger {ledgers[1]} of log orders was deleted.*bkbox log forget orders {ledgers[1]}"
            with pytest.raises(LogLedgerLostError, match=said):
                await payloads(log)
            with pytest.raises(LogLedgerLostError, match=said):
                async for _ in log.tail():
                    pass
            behind = Position(ledgers[2], EntryId(0))
            assert await payloads(log, behind) == [b"2.0", b"2.1", b"3.0", b"3.1"]
            async with await log.open_writer() as writer:
                assert writer.last_sequence("w") == 7
            (lost,) = await log.lost()
            assert (lost.ledger_id, lost.start) == (ledgers[1], Position(ledgers[1], EntryId(0)))
            assert (lost.end, lost.ends_writer) == (behind, False)
            with pytest.raises(LedgerExistsError, match="is there"):
                await log.forget(ledgers[0])
            with pytest.raises(NoSuchLedgerError, match="no ledger 99"):
                await log.forget(99)
            async with await log.open_writer() as writer:
                assert await log.forget(ledgers[1]) == lost
                await writer.append(b"the writer is not disturbed")
            assert (await log.info()).lost == (ledgers[1],)
            assert (await payloads(log))[:4] == [b"0.0", b"0.1", b"2.0", b"2.1"]
            with pytest.raises(LogLedgerLostError, match=f"goes on at {behind}"):
                await payloads(log, lost.start)
            with pytest.raises(LogLedgerLostError, match=f"goes on at {behind}"):
                await anext(log.tail(lost.start))

    go(test())


@pytest.mark.parametrize("which", [-1, -2])
def test_one_that_may_be_written(tmp_path: Path, which: int) -> None:
    """Nobody opens the log as if nothing had been there, and the writer that was is ended."""

    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client, made.client() as other:
            log = Log(client, "orders")
            await filled(log, 3)
            writer = await log.open_writer(LogOptions(roll_bytes=2_000))
            await writer.append(b"last")
            ledgers = (await log.info()).ledgers
            gone = ledgers[which]
            await client.delete_ledger(gone)
            theirs = Log(other, "orders")
            with pytest.raises(LogLedgerLostError, match=f"ledger {gone}"):
                await theirs.open_writer()
            if which == -1:
                with pytest.raises(LogLedgerLostError, match=f"ledger {gone}"):
                    await theirs.end()
            (lost,) = await theirs.lost()
            assert lost.ends_writer
            await theirs.forget(gone)
            with pytest.raises(NotLeaderError):
                while True:
                    await writer.append(b"late" * 100)
                    await asyncio.sleep(0.01)
            await writer.abort()
            async with await theirs.open_writer() as following:
                assert following.last_sequence("w") == 5
                assert following.epoch > writer.epoch + 1
            left = [each for each in ledgers if each != gone]
            assert [each for each in (await theirs.info()).ledgers if each in ledgers] == left

    go(test())


def test_a_log_that_lost_a_ledger_can_be_deleted(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            log = Log(client, "orders")
            ledgers = await filled(log, 3)
            await client.delete_ledger(ledgers[2])
            await log.delete()
            assert [each async for each in client.ledgers()] == []
            with pytest.raises(NoSuchLogError):
                await log.lost()

    go(test())


# ---- the command ----------------------------------------------------------------------------------------


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Bookies]:
    with bookies(tmp_path) as found:
        yield found


Run = Callable[..., Result]


@pytest.fixture
def run(made: Bookies) -> Run:
    def run(*arguments: str, status: int = 0) -> Result:
        done = CliRunner().invoke(main, ["log", *arguments, "--metadata", made.uri])
        assert done.exit_code == status, done.output
        return done

    return run


def test_the_way_out(run: Run, made: Bookies) -> None:
    with sync.connect(made.uri) as client:
        log = client.log("orders")
        for number in range(3):
            with log.open_writer() as writer:
                writer.append(b"%d\n" % number)
        with client.log("other").open_writer() as writer:
            writer.append(b"well\n")
        first, gone, last = log.info().ledgers
        client.delete_ledger(gone)
        assert (
            f"log forget orders {gone}" in run("read", "orders", status=ExitCode.NOT_FOUND).stderr
        )
        assert run("read", "orders", "--from", f"{last}:0").stdout == "2\n"
        for wrong in (first, 4711):
            done = run("forget", "orders", str(wrong), "--yes", status=ExitCode.NOT_FOUND)
            assert f"missing: {gone}" in done.stderr
        done = run("forget", "orders", str(gone), "--dry-run")
        assert f"from {gone}:0 to before {last}:0" in done.stderr
        assert "nothing was changed" in done.stderr
        assert log.lost()
        assert "Take ledger" in run("forget", "orders", str(gone), status=1).stderr
        assert log.lost(), "nobody said yes"
        assert "goes on without" in run("forget", "orders", str(gone), "--yes").stderr
        assert run("read", "orders").stdout == "0\n2\n"
        client.delete_ledger(last)
        done = run("list", "-o", "json", status=ExitCode.FAILED)
        listed = {each["name"]: each for each in json.loads(done.stdout)}
        assert f"ledger {last} of log orders was deleted" in listed["orders"]["problem"]
        assert listed["other"]["problem"] is None, "one log's trouble is not that of all"
        done = run("forget", "orders", str(last), "--yes")
        assert "has to be stopped first" in done.stderr
        assert "to the end" in done.stderr
        (listed, _) = json.loads(run("list", "-o", "json").stdout)
        assert (listed["lost"], listed["problem"]) == ([gone, last], None)
