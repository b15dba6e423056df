"""``bkbox job …`` against an admin server with jobs of the test's own: what it prints, what it refuses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any, cast

import pytest
import yaml
from click.testing import CliRunner, Result
from jsonschema import Draft202012Validator

from bkbox.api.admin import server
from bkbox.api.admin.client import job as ask_job
from bkbox.api.admin.client import start_job
from bkbox.api.admin.socket_path import admin_socket_path
from bkbox.api.admin.status import Boot, Status
from bkbox.api.handlers.jobs import routes
from bkbox.cli.main import main
from bkbox.cli.schema import schema_of
from bkbox.config import load as configuration
from bkbox.errors import BadRequestError, JobRefusedError
from bkbox.jobs.job import Job, JobAction, JobKind
from bkbox.jobs.registry import Registry

ERROR = "disk d2 is gone\nits ledgers: 1, 2"
STATUS = Status("0.1.0", "b:1", "i", "b:1", "running", True, "sync", Boot("up"))
REPORT = {
    "state": "running",
    "step": "moving ledger 7",
    "percent": 41.7,
    "done": {"ledgers": 5, "entries": 900, "bytes": 3 << 20},
    "expected": {"ledgers": 12, "entries": None, "bytes": None},
    "rate": {"ledgers": 0.5, "entries": 90.0, "bytes": 300 << 10},
    "eta_s": 3725.0,
    "counts": {"entries_missing": 3},
    "blocked": 1,
    "blockers": [{"ledger": 7, "reason": "no peer has it", "what_to_do": "bring one back"}],
}


class Jobs:
    """What the routes ask, without a bookie."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.paced: list[int] = []
        drain = self.registry.add(JobKind.DRAIN, {"disk": "d1"}, 1_700_000_000_000)
        self.registry.report({"id": drain.id, **REPORT}, 1_700_000_001_000)
        failed = self.registry.add(JobKind.SCRUB, {}, 1_700_000_000_000, automatic=True)
        self.registry.report({"id": failed.id, "state": "failed", "error": ERROR}, 1)

    async def start(self, kind: JobKind, arguments: dict[str, str]) -> Job:
        return self.registry.add(kind, arguments, 5)

    async def control(self, number: int, action: JobAction, bytes_per_second: int = 0) -> Job:
        return self.registry.control(number, action, bytes_per_second)

    def pace(self, bytes_per_second: int) -> None:
        self.paced.append(bytes_per_second)


@pytest.fixture
def toml(tmp_path: Path) -> str:
    path = tmp_path / "bookie.toml"
    arguments = ["init", "--config", str(path), "--metadata", f"sqlite:{tmp_path}/m.db"]
    arguments += ["--listen", "127.0.0.1:3181", "--disk", str(tmp_path / "disk")]
    assert CliRunner().invoke(main, arguments).exit_code == 0
    return str(path)


@pytest.fixture
def jobs(toml: str) -> Iterator[Jobs]:
    found, listening, over = Jobs(), Event(), Event()
    path = admin_socket_path(configuration.load(Path(toml), {}))

    async def serve() -> None:
        running = await server.start(path, lambda: STATUS, lambda: routes(lambda: cast(Any, found)))
        listening.set()
        await asyncio.to_thread(over.wait)
        await running.close()

    thread = Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert listening.wait(30)
        yield found
    finally:
        over.set()
        thread.join()


def job(toml: str, *words: str) -> Result:
    return CliRunner().invoke(main, ["job", *words, "--config", toml])


def test_a_list_for_people_and_for_programs(jobs: Jobs, toml: str) -> None:
    table = job(toml, "list").stdout
    for text in ("drain", "disk=d1", "41.7", "5 ledgers", "300.0 KiB/s", "1 h 2 min", "moving"):
        assert text in table
    assert "disk d2 is gone" in table
    assert "its ledgers" not in table, "a row for each job"
    document = json.loads(job(toml, "list", "-o", "json").stdout)
    assert [each["id"] for each in document] == [1, 2]


def test_one_job_with_what_blocks_it(jobs: Jobs, toml: str) -> None:
    shown = job(toml, "show", "1").stdout
    for text in (
        "no peer has it",
        "bring one back",
        "entries missing",
        "12 ledgers",
        "an operator",
    ):
        assert text in shown
    failed = job(toml, "show", "2").stdout
    assert "the bookie itself" in failed
    assert ERROR in failed
    missing = job(toml, "show", "77")
    assert (missing.exit_code, "no job 77" in missing.stderr) == (6, True)


def test_watching_a_job_that_has_failed(jobs: Jobs, toml: str) -> None:
    done = job(toml, "watch", "2")
    assert done.exit_code == 1
    assert "job 2 scrub  failed" in done.stdout
    for output, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        done = job(toml, "watch", "2", "-o", output)
        assert done.exit_code == 1
        assert read(done.stdout)["error"] == ERROR
        Draft202012Validator(schema_of((Job,), "")).validate(read(done.stdout))


def test_rates(jobs: Jobs, toml: str) -> None:
    assert json.loads(job(toml, "rate", "1", "50MiB", "-o", "json").stdout)["bytes_per_second"] == (
        50 << 20
    )
    assert "50MiB/s" in job(toml, "show", "1").stdout
    for text in ("2GiB/s", "unlimited", "config", "700B", "0"):
        assert job(toml, "rate", "--all", text).exit_code == 0
    assert jobs.paced == [2 << 30, 0, -1, 700, 0]
    for words in (["1"], ["--all", "1", "5MiB"], ["x", "5MiB"], ["1", "fast"], ["1", "config"]):
        assert job(toml, "rate", *words).exit_code == 2
    assert "write it as 20MB/s or 20MiB/s" in job(toml, "rate", "1", "50 MBit").stderr
    bare = job(toml, "rate", "1", "50")
    assert (bare.exit_code, "50 bytes per second are 50B/s" in bare.stderr) == (2, True)


def test_what_the_routes_refuse(jobs: Jobs, toml: str) -> None:
    path = admin_socket_path(configuration.load(Path(toml), {}))
    assert start_job(path, JobKind.SCRUB, {"disk": "d1"}).id == 3
    with pytest.raises(JobRefusedError, match="job 3 does already"):
        start_job(path, JobKind.SCRUB, {"disk": "d1"})
    with pytest.raises(BadRequestError, match=r"body\.arguments\.disk: 1 is not text"):
        start_job(path, JobKind.SCRUB, cast(Any, {"disk": 1}))
    with pytest.raises(BadRequestError, match="not a whole number"):
        ask_job(path, cast(Any, "x"))
    assert job(toml, "cancel", "1").exit_code == 0
    again = job(toml, "resume", "1")
    assert (again.exit_code, "being cancelled" in again.stderr) == (2, True)
