"""What the comparison of copies after an absence costs: ``python -m tests.bench.copies [--ledgers N]``.

Three bookies, closed ledgers of ten small entries on all of them. One is stopped and started again, twice: the second
time nothing has changed. Its last figures are the table of docs/autorecovery.md.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

from bkbox.api.admin import client as admin
from bkbox.api.admin.socket_path import JOBS_URL
from bkbox.client import connect
from bkbox.errors import BenchError
from bkbox.jobs.job import Job, JobKind, JobState, from_json
from tests.bench.peers.report import machine, replace_between
from tests.bench.quiet import QuietMachine
from tests.harness.java import CHECKOUT, missing_reason
from tests.harness.processes import BookieProcess, bkbox
from tests.harness.waiting import wait_for
from tests.harness.zookeeper import ZooKeeper
from tests.repair.copies import Cluster

_PAGE = CHECKOUT / "docs" / "autorecovery.md"
_ENTRIES = 10
_AT_ONCE = 64
_STORES = ("SQLite", "ZooKeeper")


@dataclass(frozen=True, slots=True)
class Cost:
    """``seconds``: from the start of the job to its end. ``cpu_s``: processor time of all processes of the bookie from
    its start to that end. ``compared``: ledgers."""

    seconds: float
    cpu_s: float
    compared: int


async def write(uri: str, ledgers: int) -> None:
    async with connect(uri) as client:
        left = iter(range(ledgers))

        async def some() -> None:
            for _ in left:
                async with await client.create_ledger(3, 3, 3) as writer:
                    await writer.append_many([b"entry %d" % entry for entry in range(_ENTRIES)])

        async with asyncio.TaskGroup() as group:
            for _ in range(_AT_ONCE):
                group.create_task(some())


def absence(bookie: BookieProcess) -> Cost:
    """Stop the bookie and start it again; what its check costs."""
    bookie.stop()
    bookie.start()
    job = wait_for(lambda: _ended(bookie), "the end of the check", timeout=600, pause=0.2)
    assert bookie.process is not None
    processes = [psutil.Process(bookie.process.pid), *bookie.children()]
    spent = [process.cpu_times() for process in processes]
    return Cost(
        (job.ended_ms - job.started_ms) / 1000,
        sum(each.user + each.system for each in spent),
        job.done.ledgers,
    )


def _ended(bookie: BookieProcess) -> Job | None:
    """The check since the last start, once it has ended. Raises BenchError where it has failed."""
    assert bookie.process is not None
    since_ms = psutil.Process(bookie.process.pid).create_time() * 1000
    for job in map(from_json, admin.ask(bookie.disks[0] / "admin.sock", "GET", JOBS_URL)):
        if job.kind is JobKind.CHECK and job.created_ms >= since_ms and job.ended_ms is not None:
            if job.state is not JobState.DONE:
                raise BenchError(f"the check has {job.state.value}: {job.error}")
            return job
    return None


@contextmanager
def store(kind: str, folder: Path) -> Iterator[str]:
    """The URI of a new store for metadata."""
    if kind == "SQLite":
        yield f"sqlite:{folder}/metadata.db"
        return
    server = ZooKeeper(folder).start()
    try:
        uri = server.uri(server.new_root())
        bkbox("cluster", "init", "--metadata", uri)
        yield uri
    finally:
        server.kill()


def measure(kind: str, ledgers: int) -> list[Cost]:
    with tempfile.TemporaryDirectory(prefix="copies-") as name, store(kind, Path(name)) as uri:
        cluster = Cluster(Path(name), uri)
        try:
            (bookie, *_) = cluster.start(3)
            asyncio.run(write(uri, ledgers))
            costs = [absence(bookie), absence(bookie)]
            for each in cluster.bookies:
                each.stop()
            return costs
        finally:
            cluster.close()


def table(ledgers: int, costs: dict[str, list[Cost]]) -> str:
    rows = [
        f"| {kind}, {which} absence | {cost.compared:,} | {cost.seconds:.1f} | {cost.cpu_s:.1f} |"
        for kind, found in costs.items()
        for which, cost in zip(("first", "second"), found, strict=True)
    ]
    return "\n".join(
        [
            "",
            f"{ledgers:,} closed ledgers of {_ENTRIES} entries, all on this bookie. {machine()}; "
            "`python -m tests.bench.copies`.",
            "",
            "| store | ledgers compared | seconds | CPU seconds of the bookie, its start included |",
            "|---|--:|--:|--:|",
            *rows,
            "",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.copies", description=__doc__)
    parser.add_argument("--ledgers", type=int, default=10_000)
    parser.add_argument("--no-report", action="store_true", help="leave the page as it is")
    given = parser.parse_args()
    quiet = QuietMachine(strict=not given.no_report)
    stores = [kind for kind in _STORES if kind == "SQLite" or missing_reason() is None]
    try:
        costs = {
            kind: quiet.measure(kind, partial(measure, kind, given.ledgers)) for kind in stores
        }
    except BenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    text = table(given.ledgers, costs)
    print(text)
    if not given.no_report:
        _PAGE.write_text(replace_between(_PAGE.read_text(), "copies", text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
