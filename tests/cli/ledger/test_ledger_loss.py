"""Ledgers that an operator ends: what is lost is recorded, and every command that shows the ledger says so."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bkbox_tui.explain import explained
from click.testing import CliRunner

from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.main import main
from bkbox.client import connect
from bkbox.client.log import Log
from bkbox.wire.metadata.loss import ENDED, LossRecord, losses_of, with_loss
from tests.client.losing import documents, lose, on_its_loop, run, write
from tests.client.tinybookie import Bookies, bookies
from tests.protocol.notation import ledger as ledger_of


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Bookies]:
    with bookies(tmp_path) as found:
        yield found


def record(cluster: Bookies, ledger: int) -> LossRecord:
    async def go() -> LossRecord:
        async with connect(cluster.uri) as client:
            (found,) = losses_of(await client.metadata(ledger))
            return found

    return asyncio.run(go())


def test_a_closed_ledger_of_which_all_is_lost(cluster: Bookies) -> None:
    (number,) = write(cluster, 20, close=True)
    lose(cluster, [number])
    done = run(cluster, "end", number, "--accept-loss", "--plug", "--yes")
    assert done.exit_code == 0, done.stderr
    found = record(cluster, number)
    assert (found.end, found.lost, found.lost_entries) == (19, "0-19", 20)
    assert found.unknown_after is None, "the end of a closed ledger is known"
    assert "@" in found.by
    assert found.at_ms > 0
    assert found.plugged == "0-19"

    read = run(cluster, "read", number)
    assert (read.exit_code, read.stdout) == (0, "")
    assert f"warning: ledger {number} does not hold all that was written" in read.stderr
    assert "lost: entries 0-19" in read.stderr
    assert run(cluster, "read", number, "--strict").exit_code == ExitCode.LOSS == 8
    assert "lost: entries 0-19" in run(cluster, "show", number).stdout
    assert documents(run(cluster, "show", number, "-o", "json"))["losses"][0]["lost"] == "0-19"
    assert "lost: entries 0-19" in run(cluster, "explain", number).stdout
    explained = documents(run(cluster, "explain", number, "-o", "json"))
    assert explained["losses"][0]["lost_entries"] == 20


def test_an_open_ledger_of_which_nothing_is_known(cluster: Bookies) -> None:
    (number,) = write(cluster, 20)
    lose(cluster, [number])
    shown = run(cluster, "end", number, "--dry-run")
    assert shown.exit_code == 0, "a dry run accepts nothing"
    assert "nothing tells whether any entry was acknowledged" in shown.stdout
    assert run(cluster, "end", number, "--accept-loss", "--yes").exit_code == 0
    found = record(cluster, number)
    assert (found.end, found.lost, found.unknown_after) == (-1, "", -1)
    assert set(found.silent) == {"bookie-0", "bookie-1", "bookie-2"}
    assert "unknown from entry 0 on" in run(cluster, "read", number).stderr


def test_what_an_entry_elsewhere_says_of_the_lac_counts(cluster: Bookies) -> None:
    """The one copy that is left of the last entry is rotten, and entries before it are gone."""
    (number,) = write(cluster, 10)
    lose(cluster, [number], keep=("bookie-2",))

    def rot() -> None:
        entries = cluster.bookies["bookie-2"].ledgers[number].entries  # type: ignore[index]
        entries[9] = entries[9][:-1] + bytes([entries[9][-1] ^ 1])
        del entries[3], entries[4]

    on_its_loop(cluster, rot)
    assert run(cluster, "end", number, "--accept-loss", "--yes").exit_code == 0
    found = record(cluster, number)
    assert (found.end, found.last_add_confirmed) == (8, 7)
    assert (found.lost, found.lost_entries) == ("3-4", 2)
    assert (found.doubtful, found.unknown_after) == ("9", 9)


def test_ledgers_without_loss_are_shown_without(cluster: Bookies) -> None:
    (number,) = write(cluster, 3, close=True)
    assert run(cluster, "read", number, "--strict").exit_code == 0
    assert run(cluster, "read", number).stderr == ""
    assert documents(run(cluster, "list", "--lost", "-o", "json")) == []
    assert documents(run(cluster, "show", number, "-o", "json"))["losses"] == []


def test_all_stuck_ledgers_are_ended_with_one_record(cluster: Bookies) -> None:
    stuck = write(cluster, 5, count=3)
    (closed,) = write(cluster, 5, close=True)
    lose(cluster, stuck, keep=("bookie-2",))
    shown = run(cluster, "end", "--stuck", "--dry-run")
    assert shown.exit_code == 0
    assert "3 ledgers that only an operator can end" in shown.stdout
    assert shown.stdout.count("may have been acknowledged") + shown.stdout.count("fenced:") == 3
    planned = documents(run(cluster, "end", "--stuck", "--dry-run", "-o", "json"))
    assert [each["ledger_id"] for each in planned["ledgers"]] == stuck
    assert planned["run"] == ""
    assert documents(run(cluster, "show", stuck[0], "-o", "json"))["state"] == "OPEN"

    words = ["end", "--stuck", "--accept-loss"]
    refused = CliRunner().invoke(main, ["ledger", *words, "--metadata", cluster.uri], input="yes\n")
    assert refused.exit_code == 1, "the number of ledgers is asked for"
    report = documents(run(cluster, *words, "--yes", "-o", "json"))
    assert [each["ledger_id"] for each in report["ledgers"]] == stuck
    assert {each["record"]["end"] for each in report["ledgers"]} == {4}
    assert (report["ledgers_unknown"], report["not_ended"]) == (3, [])
    assert {record(cluster, number).run for number in stuck} == {report["run"]}
    assert len(report["run"]) == 16
    lost = documents(run(cluster, "list", "--lost", "-o", "json"))
    assert [each["ledger_id"] for each in lost] == stuck
    table = run(cluster, "list", "--lost").stdout
    assert table.count("unknown beyond entry 4") == 3
    assert table.count(report["run"]) == 3
    assert documents(run(cluster, "show", closed, "-o", "json"))["loss"] is None
    again = run(cluster, *words, "--yes")
    assert again.exit_code == 0
    assert "no ledger waits for bookies in limbo alone" in again.stderr


def test_a_ledger_that_waits_for_a_bookie_that_is_away_is_left_alone(cluster: Bookies) -> None:
    (number,) = write(cluster, 5)
    lose(cluster, [number], keep=("bookie-1", "bookie-2"))

    def go_away() -> Coroutine[Any, Any, None]:
        return cluster.bookies["bookie-1"].kill()  # type: ignore[index]

    asyncio.run_coroutine_threadsafe(go_away(), cluster.loop).result(30)
    report = documents(run(cluster, "end", "--stuck", "--dry-run", "-o", "json"))
    assert report["ledgers"] == []
    (left,) = report["left_alone"]
    assert left["ledger_id"] == number
    assert "bring back bookie-1" in left["what_to_do"]


def test_a_log_of_which_a_ledger_was_ended_with_loss(cluster: Bookies, tmp_path: Path) -> None:
    words = ["--metadata", cluster.uri]
    data = tmp_path / "data"
    data.write_text("a\nb\n")
    done = CliRunner().invoke(main, ["log", "write", "orders", "--file", str(data), *words])
    assert done.exit_code == 0, done.output
    done = CliRunner().invoke(main, ["log", "read", "orders", "--strict", *words])
    assert (done.exit_code, done.stdout, done.stderr) == (0, "a\nb\n", "")

    async def lose_some() -> int:
        async with connect(cluster.uri) as client:
            number = (await Log(client, "orders").info()).ledgers[0]
            found = await client.store.read_ledger(number)
            lost = with_loss(found.value, LossRecord(1, 1, unknown_after=1))
            await client.store.write_ledger(lost, found.version)
            return number

    number = asyncio.run(lose_some())
    done = CliRunner().invoke(main, ["log", "read", "orders", *words])
    assert (done.exit_code, done.stdout) == (0, "a\nb\n")
    assert f"ledger {number} does not hold all" in done.stderr
    strict = CliRunner().invoke(main, ["log", "read", "orders", "--strict", *words])
    assert strict.exit_code == ExitCode.LOSS


@pytest.mark.parametrize("folder", ["out", "s3:x"])
def test_an_export_tells_what_its_ledgers_have_lost(
    cluster: Bookies, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    """Whatever the folder is called."""
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    whole, plugged, emptied = (write(cluster, 3, close=close)[0] for close in (True, True, False))
    lose(cluster, [plugged, emptied])
    for each in (plugged, emptied):
        done = run(cluster, "end", each, "--accept-loss", "--plug", "--yes")
        assert done.exit_code == 0, done.stderr
    words = ["--metadata", cluster.uri, "-o", "json"]
    done = CliRunner().invoke(main, ["export", "-d", folder, *words])
    found = documents(done)
    assert (found["ledgers"], found["failed"]) == (3, [])
    for each, loss in zip((plugged, emptied), found["losses"], strict=True):
        assert f"ledger {each} does not hold all" in loss
        assert f"warning: {loss}" in done.stderr
    assert f"ledger {whole} " not in done.stderr
    again = CliRunner().invoke(main, ["import", folder, "--new-ids", "map", *words])
    assert documents(again)["ledgers"] == 3


def test_either_a_ledger_or_all_stuck_ones(cluster: Bookies) -> None:
    for words in (("end", "--dry-run"), ("end", 7, "--stuck", "--dry-run"), ("end", "--stuck")):
        assert run(cluster, *words).exit_code == ExitCode.USAGE


# ---- the record -----------------------------------------------------------------------------------------


def test_each_ending_keeps_the_records_before_it() -> None:
    once = with_loss(ledger_of(3, 3, 2), LossRecord(1, 5, lost="3"))
    twice = with_loss(once, LossRecord(2, 5, plugged="3"))
    assert [each.at_ms for each in losses_of(twice)] == [1, 2]
    assert json.loads(dict(twice.custom)[ENDED])["at_ms"] == 1


def test_an_older_record_does_not_say_that_nothing_was_lost() -> None:
    """It had no word for what cannot be known."""
    older = {"at_ms": 1, "end": 5, "lost": "", "dropped": "", "plugged": ""}
    found = replace(ledger_of(3, 3, 2), custom=((ENDED, json.dumps(older).encode()),))
    assert losses_of(found)[0].losses == "unknown beyond entry 5"


@pytest.mark.parametrize(
    "value", [b"\xff", b"[]", b"1", b'{"later": 1}', b'{"at_ms": "x"}', b"[" * 9999]
)
def test_a_record_that_cannot_be_read_is_a_record(value: bytes) -> None:
    (found,) = losses_of(replace(ledger_of(3, 3, 2), custom=((ENDED, value),)))
    assert found.unknown_after == -1
    assert "a time that is not known" in found.text


def test_the_screen_shows_it_too(cluster: Bookies) -> None:
    (number,) = write(cluster, 3)
    lose(cluster, [number])
    assert run(cluster, "end", number, "--accept-loss", "--yes").exit_code == 0
    text = explained(documents(run(cluster, "explain", number, "-o", "json")))
    assert "[X] ended at entry -1" in text
    assert "nothing tells whether any entry was acknowledged" in text
