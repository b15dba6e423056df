"""Commands around one bookie that was initialised for real: status, cookie, index."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path
from threading import Event, Thread

import pytest
from click.testing import CliRunner, Result

from bkbox.api.admin import server
from bkbox.api.admin.socket_path import admin_socket_path
from bkbox.api.admin.status import (
    Boot,
    DiskStatus,
    Limbo,
    Process,
    Status,
    StatusWarning,
    from_json,
)
from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.main import main
from bkbox.config import load as configuration
from bkbox.jobs.job import Blocker
from bkbox.storage.disk.lock import DiskLock


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    """The configuration of a new bookie with two disks."""
    path = tmp_path / "bookie.toml"
    done = bkbox(
        *("init", "--config", path, "--disk", tmp_path / "a", "--disk", tmp_path / "b"),
        *("--metadata", f"sqlite:{tmp_path}/cluster.db", "--listen", "127.0.0.1:3181"),
    )
    assert done.exit_code == 0, done.stderr
    return path


def bkbox(*words: object, stdin: str = "") -> Result:
    result = CliRunner().invoke(main, [str(word) for word in words], input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


STATUS = Status(
    version="0.1.0",
    bookie_id="127.0.0.1:3181",
    instance_id="i",
    listen="127.0.0.1:3181",
    state="running",
    writable=True,
    ack_after="sync",
    boot=Boot("repairing"),
    disks=(
        DiskStatus("/data/a", "6a1c", "disk replaced", "empty", "in service", 3, 2, 2**30, 2**40),
    ),
    processes=(Process("frontend", "frontend", 7, 0, True),),
    limbo=Limbo(2, 1, 10, 5, 4, 4096, None, (Blocker(9, "no peer", "start one"),)),
    warnings=(StatusWarning("one is late", "bkbox ledger show 9"),),
)


def test_status_of_a_bookie_that_does_not_run(toml: Path) -> None:
    done = bkbox("status", "--config", toml)
    assert done.exit_code == ExitCode.NOT_RUNNING
    assert done.stderr.startswith("error: no bookie is running")
    assert done.stdout == ""


def test_status_shows_the_document(toml: Path) -> None:
    path = admin_socket_path(configuration.load(toml, os.environ))
    listening, over = Event(), Event()

    async def serve() -> None:
        running = await server.start(path, lambda: STATUS)
        listening.set()
        await asyncio.to_thread(over.wait)
        await running.close()

    thread = Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert listening.wait(30)
        document = json.loads(bkbox("status", "--config", toml, "-o", "json").stdout)
        table = bkbox("status", "--config", toml).stdout
    finally:
        over.set()
        thread.join()
    assert from_json(document) == STATUS
    for text in (
        "disk replaced",
        "1.0 GiB",
        "frontend",
        "ledgers repaired  1",
        "no peer",
        "one is late",
    ):
        assert text in table


def test_cookies_of_a_new_bookie(toml: Path) -> None:
    assert bkbox("cookie", "verify", "--config", toml).exit_code == 0
    shown = json.loads(bkbox("cookie", "show", "--config", toml, "-o", "json").stdout)
    assert shown[0]["where"] == "metadata store"
    assert len({each["cookie"] for each in shown}) == 1
    assert "127.0.0.1:3181" in shown[0]["cookie"]
    assert "metadata store:\n" in bkbox("cookie", "show", "--config", toml).stdout
    repaired = bkbox("cookie", "repair", "--config", toml)
    assert (repaired.exit_code, "nothing to do" in repaired.stderr) == (0, True)


def test_a_lost_disk_is_named_and_repaired_only_after_a_yes(toml: Path, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "b")
    verified = bkbox("cookie", "verify", "--config", toml)
    assert verified.exit_code == ExitCode.REFUSED
    assert str(tmp_path / "b") in verified.stdout
    report = json.loads(bkbox("cookie", "verify", "--config", toml, "-o", "json").stdout)
    assert report["ok"] is False
    assert report["differences"][0]["field"] == "ledgerDirs"

    asked = bkbox("cookie", "repair", "--config", toml, stdin="n\n")
    assert asked.exit_code == ExitCode.FAILED
    assert "replacement of a lost disk" in asked.stderr
    assert not (tmp_path / "b").exists()

    assert bkbox("cookie", "repair", "--config", toml, "--yes").exit_code == 0
    assert bkbox("cookie", "verify", "--config", toml).exit_code == 0


def test_a_disk_of_another_bookie_is_refused(toml: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    done = bkbox(
        *("init", "--config", other, "--disk", tmp_path / "c"),
        *("--metadata", f"sqlite:{tmp_path}/cluster.db", "--listen", "127.0.0.1:3182"),
    )
    assert done.exit_code == 0
    shutil.rmtree(tmp_path / "b")
    (tmp_path / "c").rename(tmp_path / "b")
    done = bkbox("cookie", "repair", "--config", toml, "--yes")
    assert done.exit_code == ExitCode.FAILED
    assert "bookieHost" in done.stderr


@pytest.mark.parametrize("command", [["cookie", "repair", "--yes"], ["index", "rebuild"]])
def test_not_while_the_disks_are_held(toml: Path, tmp_path: Path, command: list[str]) -> None:
    lock = DiskLock(tmp_path / "b")
    try:
        done = bkbox(*command, "--config", toml)
    finally:
        lock.release()
    assert done.exit_code == ExitCode.RUNNING
    assert "in use by the process" in done.stderr


def test_rebuild_of_all_disks_and_of_one(toml: Path, tmp_path: Path) -> None:
    done = bkbox("index", "rebuild", "--config", toml, "-o", "json")
    assert done.exit_code == 0, done.stderr
    reports = json.loads(done.stdout)
    assert [report["disk"] for report in reports] == [str(tmp_path / "a"), str(tmp_path / "b")]
    assert all(report["unreadable"] == [] for report in reports)
    one = bkbox("index", "rebuild", "--config", toml, "--disk", tmp_path / "b")
    assert str(tmp_path / "a") not in one.stdout
    wrong = bkbox("index", "rebuild", "--config", toml, "--disk", tmp_path / "c")
    assert wrong.exit_code == ExitCode.USAGE
