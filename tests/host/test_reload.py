"""A changed configuration and a bookie that runs: taken over where it can be, refused as a whole where not."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.harness.fixtures import MakeBookie
from tests.harness.processes import BookieProcess, bkbox, put_keys
from tests.harness.raw import EOK, EREADONLY, RawClient, add_frame
from tests.harness.waiting import wait_for


@pytest.fixture
def bookie(make_bookie: MakeBookie) -> BookieProcess:
    return make_bookie(slow_operation_ms=0).start()


def config(bookie: BookieProcess, *words: str, **how: Any) -> Any:
    done = bkbox("config", *words, "--config", str(bookie.config), "-o", "json", **how)
    return json.loads(done.stdout)


def test_every_process_takes_over_what_it_holds(bookie: BookieProcess) -> None:
    with RawClient(bookie.port) as client:
        assert client.add(1, 0, b"x" * 2000) == EOK
    put_keys(bookie, disk_usage_max=0.01, log_level="warning", frame_bytes_max=1024)
    assert config(bookie, "reload", "--dry-run") == config(bookie, "reload")
    assert config(bookie, "reload") == []

    def worker_refuses() -> bool:
        with RawClient(bookie.port) as client:
            return client.add(2, 0, b"x") == EREADONLY

    wait_for(worker_refuses, "the workers to find their disks full")
    with RawClient(bookie.port) as client, pytest.raises(EOFError):
        client.send(add_frame(1, 1, b"x" * 2000))
        client.frame()
    assert config(bookie, "diff")[-1]["takes effect"] == ""


def test_a_worker_that_begins_later_has_the_new_values(bookie: BookieProcess) -> None:
    put_keys(bookie, slow_operation_ms=77)
    assert [each["key"] for each in config(bookie, "reload")] == ["slow_operation_ms"]
    put_keys(bookie, slow_operation_ms=0)
    before = config(bookie, "diff")
    assert [row for row in before if row["key"] == "slow_operation_ms"] == [
        {
            "key": "slow_operation_ms",
            "value": 0,
            "default": 1000,
            "running": 77,
            "takes effect": f"with `bkbox config reload --config {bookie.config}`",
        }
    ]


def test_a_key_that_needs_a_restart_refuses_all(bookie: BookieProcess) -> None:
    put_keys(bookie, disk_usage_max=0.5, checkpoint_bytes=8192)
    done = bkbox("config", "reload", "--config", str(bookie.config), check=False)
    assert done.returncode == 2
    assert "checkpoint_bytes cannot change while the bookie runs" in done.stderr
    assert "error: nothing was changed" in done.stderr
    pending = {row["key"]: row["takes effect"] for row in config(bookie, "diff")}
    assert pending["disk_usage_max"] == f"with `bkbox config reload --config {bookie.config}`"
    assert pending["checkpoint_bytes"] == "with a restart"
    bookie.config.write_text('disk_usage_max = 7\nack_after = "never"\n')
    assert bookie.process is not None
    bookie.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "SIGHUP: the configuration is not taken over" in bookie.stderr, "the log")
    [line] = [each for each in bookie.stderr.splitlines() if "is not taken over" in each]
    assert "disk_usage_max" in line
    assert "; " in line
    assert "ack_after" in line
    assert "\\x0a" not in line


def test_a_hangup_reloads(bookie: BookieProcess) -> None:
    put_keys(bookie, stop_timeout_s=12.5)
    assert bookie.process is not None
    bookie.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "stop_timeout_s is now 12.5" in bookie.stderr, "the log")
    assert bookie.stop() == 0


def test_a_bookie_that_does_not_run(tmp_path: Path) -> None:
    bookie = BookieProcess(tmp_path, f"sqlite:{tmp_path}/m.db").init()
    done = bkbox("config", "reload", "--config", str(bookie.config), check=False)
    assert done.returncode == 3
