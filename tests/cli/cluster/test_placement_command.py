"""``bkbox placement explain`` against a small cluster."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bkbox.base.ids import BookieId
from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.main import main
from bkbox.wire.metadata.service_info import rpc_service_info
from tests.client.tinybookie import cluster
from tests.harness.processes import BKBOX

AWAY = "away.storage-17.eu-west-1.example.com:3181"
RACKS = {"bookie-0": "/r1", "bookie-1": "/r1", "bookie-2": "/r2", "full": "/r3"}


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Three bookies, a read-only one called full, one called AWAY that is known by its cookie."""
    folder = tmp_path_factory.mktemp("placement")
    ready, done = threading.Event(), threading.Event()

    async def run() -> None:
        async with cluster(folder) as made:
            info = rpc_service_info("127.0.0.1", 1)
            full = await made.store.register(BookieId("full"), info, read_only=True)
            await made.store.write_cookie(BookieId(AWAY), b"5\n", None)
            ready.set()
            await asyncio.to_thread(done.wait)
            await full.close()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    assert ready.wait(30)
    try:
        yield f"sqlite:{folder / 'cluster.db'}"
    finally:
        done.set()
        thread.join()


@pytest.fixture
def rack_map(tmp_path: Path) -> str:
    file = tmp_path / "racks.json"
    file.write_text(json.dumps({"g": {bookie: {"rack": rack} for bookie, rack in RACKS.items()}}))
    return str(file)


def explain(uri: str, *words: str) -> Result:
    result = CliRunner().invoke(main, ["placement", "explain", *words, "--metadata", uri])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def document(uri: str, *words: str) -> dict[str, Any]:
    result = explain(uri, "-o", "json", *words)
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert isinstance(found, dict)
    return found


def test_the_document(uri: str, rack_map: str) -> None:
    found = document(uri, "-E", "2", "-Q", "2", "-A", "1", "--rack-map", rack_map)
    sizes = [found[key] for key in ("ensemble_size", "write_quorum", "ack_quorum")]
    assert sizes == [2, 2, 1]
    by_id = {each["bookie"]: each for each in found["bookies"]}
    assert by_id["bookie-2"] == {
        "bookie": "bookie-2",
        "host": "127.0.0.1",
        "rack": "/r2",
        "mode": "writable",
        "reachable": True,
        "free_bytes": 400,
        "weight": 1.0,
        "verdict": "chosen",
        "reason": None,
    }
    one_of_r1 = {name for name in ("bookie-0", "bookie-1") if by_id[name]["verdict"] == "chosen"}
    assert {*found["ensemble"]} == {"bookie-2", *one_of_r1}
    (other,) = {"bookie-0", "bookie-1"} - one_of_r1
    assert by_id[other]["verdict"] == "passed_over"
    assert by_id[other]["reason"] == "rack /r1 has 1 of 2 already"
    assert (by_id["full"]["verdict"], by_id["full"]["reason"]) == ("dropped", "read-only")
    assert (by_id[AWAY]["mode"], by_id[AWAY]["reason"]) == ("down", "down")
    assert by_id[AWAY]["rack"] == "/default-rack"
    assert found["relaxed"] == ["not every write quorum spans 2 hosts"]


def test_the_table_and_what_was_relaxed(uri: str) -> None:
    result = explain(uri, "-E", "3")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["bookie", "rack", "free", "weight", "verdict"]
    assert [line.split(maxsplit=4)[0] for line in lines[1:6]] == [
        *(AWAY, "bookie-0", "bookie-1", "bookie-2", "full")
    ]
    assert lines[1].split() == [AWAY, "/default-rack", "-", "-", "dropped:", "down"]
    assert lines[2].split() == ["bookie-0", "/default-rack", "400", "B", "1.0", "chosen"]
    assert lines[6].startswith("ensemble: bookie-")
    assert lines[7:] == [
        "relaxed: not every write quorum spans 2 racks, because of where the bookies are: "
        "/default-rack (3)",
        "relaxed: not every write quorum spans 2 hosts",
    ]
    assert "without --topology-script or --rack-map every bookie is in one rack" in result.stderr


def test_too_few_bookies_say_so_and_end_with_an_exit_code(uri: str, rack_map: str) -> None:
    result = explain(uri, "--exclude", "bookie-0", "--exclude", "nobody", "--rack-map", rack_map)
    assert result.exit_code == ExitCode.TRY_AGAIN
    assert "ensemble:" not in result.stdout
    rows = {line.split()[0]: line.split()[-2:] for line in result.stdout.splitlines()[1:]}
    assert rows["bookie-0"] == ["dropped:", "excluded"]
    assert rows["bookie-1"][-1] == rows["bookie-2"][-1] == "usable"
    assert "warning: --exclude nobody: the cluster has no such bookie" in result.stderr
    assert (
        "error: 3 bookies are needed, 2 are available: bookie-1, bookie-2; dropped: "
        f"{AWAY} (down), bookie-0 (excluded), full (read-only)" in result.stderr
    )
    result = explain(uri, "-E", "1000000000", "-o", "json")
    assert result.exit_code == ExitCode.TRY_AGAIN
    assert json.loads(result.stdout)["ensemble"] is None


def test_a_script_says_racks_and_its_failure_is_told(uri: str, tmp_path: Path) -> None:
    script = tmp_path / "racks.sh"
    script.write_text("#!/bin/sh\necho /rack-of-$1\n")
    script.chmod(0o755)
    found = document(uri, "--topology-script", str(script))
    assert {each["rack"] for each in found["bookies"] if each["bookie"] != AWAY} == {
        "/rack-of-127.0.0.1"
    }
    script.write_text("#!/bin/sh\necho 'no such switch' >&2\nexit 2\n")
    line = [*BKBOX, "placement", "explain", "--metadata", uri, "--topology-script", str(script)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=True)
    assert f"topology script {script}: exit code 2 for 127.0.0.1: no such switch" in done.stderr
    assert done.stderr.count("127.0.0.1 is taken to be in /default-rack") == 1


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("-E", "2", "-Q", "3"), "ensemble size >= write quorum >= ack quorum >= 1"),
        (("-E", "3", "-Q", "2", "-A", "3"), "do not fit"),
        (("-E", "0"), "do not fit"),
        (("-E", "x"), "'x' is not a valid integer"),
        (("--exclude", "a/b"), "bookie id 'a/b' is not allowed"),
        (("--topology-script", "/nowhere"), "topology script /nowhere: no such file"),
        (("--rack-map", "/nowhere"), "rack map /nowhere:"),
        (("--rack-map", "/a", "--topology-script", "/b"), "give one of them"),
    ],
)
def test_wrong_arguments(uri: str, words: tuple[str, ...], why: str) -> None:
    result = explain(uri, *words)
    assert result.exit_code == ExitCode.USAGE
    assert why in result.stderr
    assert result.stdout == ""


def test_at_a_terminal_of_80_columns_nothing_is_cut(uri: str, rack_map: str) -> None:
    ours, theirs = pty.openpty()
    line = [*BKBOX, "placement", "explain", "-E", "2", "--metadata", uri, "--rack-map", rack_map]
    env = {**os.environ, "COLUMNS": "80", "TERM": "dumb"}
    done = subprocess.run(line, stdout=theirs, env=env, timeout=60)
    os.close(theirs)
    text = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert done.returncode == 0
    rows = [row for row in text.splitlines() if row.startswith("│")]
    assert {len(row) for row in rows} <= set(range(81))
    columns = zip(*(row.split("│")[1:-1] for row in rows), strict=True)
    bookies, _, _, _, verdicts = ("".join(map(str.rstrip, column)) for column in columns)
    assert AWAY in bookies.replace(" ", "")
    assert "dropped: read-only" in verdicts
