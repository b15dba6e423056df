"""What a start costs, in things that can be counted: modules that its processes load, and syncs.

Times depend on the machine, and are for `make bench-peers`. What is listed here is what made starts slow and processes
large, and what nobody would notice coming back.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bkbox.native import kernel_in_use
from tests.harness.processes import BookieProcess

HOOKS = Path(__file__).parent / "hooks"

NEVER = {"h11", "rich", "kazoo", "multiprocessing", "bkbox.api.admin.status_parts"}
if kernel_in_use() == "compiled":  # else the library that computes CRC32C loads them
    NEVER |= {"crc32c", "importlib.metadata", "argparse"}
ASYNC = {"asyncio", "concurrent.futures"}
LEVELDB = {"plyvel", "plyvel_next"}
OPENSSL = {"ssl", "_hashlib"}
CLIENT = {"bkbox.client", "bkbox.protocol.writer", "bkbox.protocol.recovery"}

NOT_NEEDED = {
    "cli.main": NEVER
    | CLIENT
    | {
        *LEVELDB,
        "bkbox.api.admin.application",
        "bkbox.wire.v2",
        "bkbox.wire.v3",
        "bkbox.storage.disk.disk",
    },
    "worker": NEVER
    | CLIENT
    | OPENSSL
    | {"asyncio", "sqlite3", "click", "dataclasses", "bkbox.config", "bkbox.metadata"},
    "frontend": NEVER
    | ASYNC
    | CLIENT
    | LEVELDB
    | OPENSSL
    | {"sqlite3", "click", "dataclasses", "bkbox.config", "bkbox.metadata"},
    "repair": NEVER | LEVELDB | {"click"},
}
"""Per process: what has no business in it while a healthy bookie starts and nobody asks it anything. The repair worker
runs a job then: a bookie that was away compares its copies.
"""


@pytest.fixture
def bookie(tmp_path: Path) -> Iterator[BookieProcess]:
    """Initialised, run once and stopped in order, so that its next start is an ordinary one."""
    made = BookieProcess(tmp_path, f"sqlite:{tmp_path}/cluster.db").init(disks=1)
    made.start()
    assert made.stop() == 0
    yield made
    made.ensure_gone()


def start(bookie: BookieProcess, side: Path) -> dict[str, list[str]]:
    """Start it, and say what each process did until it was ready, or, for the repair worker, until it had stopped."""
    side.mkdir()
    bookie.start(environment={"START_SIDE": str(side), "PYTHONPATH": str(HOOKS)})
    found = lines(side)
    assert bookie.stop() == 0
    return {**found, "repair": lines(side)["repair"]}


def lines(side: Path) -> dict[str, list[str]]:
    return {log.stem: log.read_text().splitlines() for log in side.glob("*.log")}


def test_no_process_loads_what_it_does_not_need(bookie: BookieProcess, tmp_path: Path) -> None:
    did = start(bookie, tmp_path / "side")
    assert did.keys() == NOT_NEEDED.keys()
    by_python = loaded_by("logging")
    for role, unwanted in NOT_NEEDED.items():
        loaded = {line.removeprefix("import ") for line in did[role] if line.startswith("import ")}
        assert "bkbox.ipc.messages" in loaded, "else nothing was seen"
        assert loaded & unwanted <= by_python, role


def loaded_by(module: str) -> set[str]:
    """What Python itself loads with one of its modules; with logging, 3.14 loads dataclasses."""
    asked = f"import {module}, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_a_clean_start_syncs_its_marker_and_its_witness_and_nothing_else(
    bookie: BookieProcess, tmp_path: Path
) -> None:
    did = start(bookie, tmp_path / "side")
    every = itertools.chain.from_iterable(did.values())
    syncs = [line.removeprefix("sync ") for line in every if line.startswith("sync ")]
    disk = bookie.disks[0]
    assert syncs == [f"{disk}/DIRTY.new", str(disk), f"{disk}/WITNESS.new", str(disk)], (
        "nothing to settle, and nothing since the last checkpoint"
    )
