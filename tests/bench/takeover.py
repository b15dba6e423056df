"""What `bkbox takeover` and `bkbox handback` cost beside ``cp`` of the same disk.

``python -m tests.bench.takeover [--gib 2] [--rounds 3] [--dir FOLDER] [--no-report]`` (JDK 17, Maven): entries of 1 KiB
on a Java bookie with DbLedgerStorage, stopped in order. A round copies its disk, takes it over and hands it back;
before each of these the disk's files are synced and not in the page cache, and each ends with a sync. The table goes
between the markers ``takeover`` of docs/takeover.md.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bkbox.bench.server import temporary_folder
from bkbox.client import connect
from bkbox.errors import BenchError
from tests.bench.peers import report
from tests.bench.peers.java import JavaBookie, ZooKeeper
from tests.bench.quiet import QuietMachine
from tests.harness.java import CHECKOUT, missing_reason
from tests.harness.processes import bkbox

PAGE = CHECKOUT / "docs" / "takeover.md"
LEDGERS = 16
ENTRY_BYTES = 1024
AT_ONCE = 4096
TIMEOUT_S = 1800.0
STEPS = ("cp", "takeover", "handback")


async def write(uri: str, entries: int) -> None:
    payloads = [os.urandom(ENTRY_BYTES) for _ in range(AT_ONCE)]
    async with connect(uri) as client:
        for _ in range(LEDGERS):
            async with await client.create_ledger(1, 1, 1) as writer:
                for _ in range(entries // LEDGERS // AT_ONCE):
                    await writer.append_many(payloads)


class Disk:
    """A stopped Java bookie's, and the configuration with which bkbox takes it over."""

    def __init__(self, root: Path, java: JavaBookie) -> None:
        self._root = root
        self._java = java.folder
        self._toml = root / "bookie.toml"
        bkbox("config", "import", str(self._java / "bk.conf"), "--to", str(self._toml))
        lines = self._toml.read_text().splitlines()
        lines = [line for line in lines if line.partition("=")[0].strip() != "listen"]
        lines.append(f'listen = "127.0.0.1:{java.port}"')
        self._toml.write_text("\n".join(lines) + "\n")

    @property
    def bytes(self) -> int:
        return sum(each.stat().st_size for each in self._files())

    def round(self) -> dict[str, float]:
        """Seconds of each step."""
        copy = self._root / "copy"
        found = {
            "cp": self._timed(lambda: _call("cp", "-r", str(self._java / "ledgers"), str(copy)))
        }
        shutil.rmtree(copy)
        for name in STEPS[1:]:
            conf = str(self._java / "bk.conf")
            words = (name, "--conf", conf, "--config", str(self._toml), "--yes")
            found[name] = self._timed(partial(bkbox, *words, timeout=TIMEOUT_S))
        return found

    def _timed(self, step: Callable[[], object]) -> float:
        os.sync()
        for each in self._files():
            with each.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        began_s = time.perf_counter()
        step()
        os.sync()
        return time.perf_counter() - began_s

    def _files(self) -> list[Path]:
        return [each for each in (self._java / "ledgers").rglob("*") if each.is_file()]


def _call(*words: str) -> None:
    subprocess.run(words, check=True, timeout=TIMEOUT_S)


def prepared(root: Path, entries: int) -> Disk:
    zookeeper = ZooKeeper(root / "zookeeper").start()
    uri = zookeeper.new_cluster()
    java = JavaBookie(root / "java", uri, journal=True, heap_mb=1024, direct_mb=1024).start()
    asyncio.run(write(uri, entries))
    java.stop()
    return Disk(root, java)


def table(gib: float, rounds: list[dict[str, float]]) -> str:
    rows = ["| | seconds per GiB | of `cp` (least, most) |", "|---|--:|--:|"]
    for name in STEPS:
        ratios = [each[name] / each["cp"] for each in rounds]
        median_s = statistics.median(each[name] for each in rounds)
        rows.append(
            f"| `{name if name == 'cp' else f'bkbox {name}'}` | {median_s / gib:.1f} "
            f"| {statistics.median(ratios):.2f} ({min(ratios):.2f}, {max(ratios):.2f}) |"
        )
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.takeover", description=__doc__)
    parser.add_argument("--gib", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", type=Path, default=Path.cwd(), help="where the bookie writes")
    parser.add_argument("--no-report", action="store_true", help="leave the page as it is")
    given = parser.parse_args()
    if (reason := missing_reason()) is not None:
        print(f"error: {reason}", file=sys.stderr)
        return 1
    quiet = QuietMachine(strict=not given.no_report)
    try:
        with temporary_folder(given.dir) as root:
            disk = prepared(root, int(given.gib * (1 << 30)) // ENTRY_BYTES)
            gib = disk.bytes / (1 << 30)
            rounds = [
                quiet.measure(f"round {number + 1}", disk.round) for number in range(given.rounds)
            ]
    except BenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    text = (
        f"Medians of {given.rounds} rounds, {gib:.1f} GiB of entries of 1 KiB, DbLedgerStorage. {report.machine()}; "
        f"`python -m tests.bench.takeover`.\n\n{table(gib, rounds)}"
    )
    print(text)
    if not given.no_report:
        PAGE.write_text(report.replace_between(PAGE.read_text(), "takeover", text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
