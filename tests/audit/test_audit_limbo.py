"""What an audit says of ledgers that bookies in limbo keep from being recovered, or from being read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from click.testing import CliRunner, Result

from bkbox.audit.plan import plan_of
from bkbox.audit.tables import read_table, rows_of
from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.main import main
from bkbox.client import connect
from tests.client.losing import lose, on_its_loop, run, write
from tests.client.tinybookie import Bookies, bookies


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Bookies]:
    with bookies(tmp_path) as found:
        yield found


def audit(cluster: Bookies, folder: Path, *words: str) -> tuple[Result, dict[str, Any]]:
    line = ["audit", "--metadata", cluster.uri, "-o", str(folder), "--no-orphans", *words]
    done = CliRunner().invoke(main, line)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done, json.loads((folder / "summary.json").read_text())


def rows(folder: Path, table: str) -> list[Any]:
    return rows_of(table, read_table(folder, table))


@pytest.mark.parametrize("lists", [True, False])
def test_open_ledgers_that_are_blocked_in_limbo(
    cluster: Bookies, tmp_path: Path, lists: bool
) -> None:
    numbers = write(cluster, 3, count=5)
    done, _ = audit(cluster, tmp_path / "before")
    assert done.exit_code == 0, done.stderr
    assert "nothing is wrong" in done.stderr

    lose(cluster, numbers, keep=("bookie-2",))
    for bookie in cluster.bookies.values():
        on_its_loop(cluster, lambda bookie=bookie: setattr(bookie, "lists", lists))  # type: ignore[misc]
    folder = tmp_path / "audit"
    done, _ = audit(cluster, folder)
    assert done.exit_code == ExitCode.FAILED
    assert "5 open ledgers cannot be recovered" in done.stderr
    assert "nothing is" not in done.stderr
    assert [(row.ledger_id, row.limbo) for row in rows(folder, "blocked")] == [
        (number, ["bookie-0", "bookie-1"]) for number in numbers
    ]
    assert "5 open ledgers cannot be recovered" in (folder / "summary.md").read_text()

    assert run(cluster, "end", "--stuck", "--accept-loss", "--yes").exit_code == 0
    done, _ = audit(cluster, folder)
    assert rows(folder, "blocked") == []
    assert [row.ledger_id for row in rows(folder, "ended")] == numbers
    assert "losses accepted before: 5" in done.stderr


def test_one_bookie_in_limbo_is_no_fault_and_no_certainty(cluster: Bookies, tmp_path: Path) -> None:
    numbers = write(cluster, 3)
    lose(cluster, numbers, keep=("bookie-1", "bookie-2"))
    done, _ = audit(cluster, tmp_path / "audit")
    assert done.exit_code == ExitCode.TRY_AGAIN
    assert "nothing is known to be wrong, but 1 copy of ledgers is in limbo" in done.stderr


def test_entries_without_a_readable_copy_are_a_row_of_their_ledger(
    cluster: Bookies, tmp_path: Path
) -> None:
    """One bookie forgot them and knows it, the others cannot read theirs."""
    numbers = write(cluster, 4, close=True, count=2)

    def damage() -> None:
        for number in numbers:
            for bookie in cluster.bookies.values():
                for entry in (1, 3):
                    data = bookie.ledgers[number].entries[entry]
                    bookie.ledgers[number].entries[entry] = data[:-1] + bytes([data[-1] ^ 1])
            forgetful = cluster.bookies["bookie-0"]  # type: ignore[index]
            forgetful.limbo = True
            del forgetful.ledgers[number].entries[1], forgetful.ledgers[number].entries[3]

    on_its_loop(cluster, damage)
    folder = tmp_path / "audit"
    done, summary = audit(cluster, folder, "--read")
    assert done.exit_code == ExitCode.FAILED
    assert "4 entries of 2 ledgers have no readable copy" in done.stderr
    found = rows(folder, "no_copy")
    assert [(row.ledger_id, row.entries, row.ranges) for row in found] == [
        (number, 2, "1, 3") for number in numbers
    ]
    assert "bookie-0 is in limbo" in found[0].why
    assert "bookie-1: the digest does not match" in found[0].why
    assert (summary["rows"]["corrupt"], summary["rows"]["unreadable"]) == (0, 0)
    assert plan_of(folder) == [], "there is nothing to copy from"


def test_a_copy_of_the_wrong_size_is_found_out_by_the_lengths_around_it(
    cluster: Bookies, tmp_path: Path
) -> None:
    async def go() -> int:
        async with connect(cluster.uri) as client:
            async with await client.create_ledger(2, 2, 2) as writer:
                await writer.append_many([b"0123456789"] * 5)
            ensemble = writer.metadata.last_fragment.ensemble
            reader = await client.open_ledger(writer.ledger_id)
            forged = bytes(reader.digests.package(2, 1, 30, b"short"))

            def put() -> None:
                cluster.bookies[ensemble[1]].ledgers[writer.ledger_id].entries[2] = forged

            cluster.loop.call_soon_threadsafe(put)
            while (await client.pool.read(ensemble[1], writer.ledger_id, 2, None)).entry != forged:
                await asyncio.sleep(0.01)
            return writer.ledger_id

    number = asyncio.run(go())
    folder = tmp_path / "audit"
    done, _ = audit(cluster, folder, "--read")
    assert done.exit_code == ExitCode.FAILED
    (step,) = plan_of(folder)
    assert (step.action.value, step.ledger_id, step.first_entry) == ("overwrite", number, 2)
    assert "fit between the lengths of the entries around" in step.why
    plan = tmp_path / "plan.csv"
    words = ["repair", "--metadata", cluster.uri]
    CliRunner().invoke(main, [*words, "--from-audit", str(folder), "--write-plan", str(plan)])
    done = CliRunner().invoke(main, [*words, "--plan", str(plan), "--yes"])
    assert done.exit_code == 0, done.output
    assert audit(cluster, folder, "--read")[0].exit_code == 0
