"""Announcing and finding, on loopback only; and a bookie that cares about neither."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

import bkbox
from bkbox.supervisor.service.mdns import properties_of, service_label
from tests.harness.fixtures import MakeBookie
from tests.harness.processes import BookieProcess
from tests.harness.processes import bkbox as command
from tests.harness.waiting import wait_for


def found() -> dict[str, dict[str, Any]]:
    done = command("discover", "--timeout", "2s", "--interface", "127.0.0.1", "-o", "json")
    return {each["id"]: each for each in json.loads(done.stdout)}


def status(bookie: BookieProcess) -> dict[str, Any]:
    """Patiently: other tests may keep the host busy."""
    words = ("status", "--config", str(bookie.config), "--timeout", "60", "-o", "json")
    said: dict[str, Any] = json.loads(command(*words, timeout=90).stdout)
    return said


def test_a_bookie_is_found_while_it_runs_and_says_goodbye(make_bookie: MakeBookie) -> None:
    bookie = make_bookie(announce="true").start()
    silent = make_bookie(name="silent").start()
    said = wait_for(lambda: found().get(bookie.bookie_id), "the bookie to be found", 60)
    assert said == {
        "id": bookie.bookie_id,
        "address": bookie.bookie_id,
        "version": bkbox.__version__,
        "instance": status(bookie)["instance_id"],
        "admin": f"unix:{bookie.disks[0]}/admin.sock",
    }
    assert silent.bookie_id not in found()
    assert bookie.stop() == 0
    assert bookie.bookie_id not in found()


def test_two_with_names_that_differ_in_signs_are_both_found(make_bookie: MakeBookie) -> None:
    for name in ("rack.1", "rack-1"):
        make_bookie(name=name, metadata=f"{name}.db", bookie_id=name, announce="true").start()
    wait_for(lambda: {"rack.1", "rack-1"} <= found().keys(), "both to be found", 60)


def test_an_address_that_is_not_of_this_host_stops_nothing(make_bookie: MakeBookie) -> None:
    bookie: BookieProcess = make_bookie(announce="true", advertised_host="192.0.2.1").start()
    wait_for(lambda: "the bookie is not announced" in bookie.stderr, "the warning")
    assert status(bookie)["state"] == "running"
    assert bookie.stop() == 0


def test_without_the_library_there_is_a_warning_and_a_bookie(
    make_bookie: MakeBookie, tmp_path: Path
) -> None:
    (tmp_path / "zeroconf.py").write_text("raise ImportError('not here')")
    bookie = make_bookie(announce="true").start(environment={"PYTHONPATH": str(tmp_path)})
    wait_for(lambda: "pip install 'bkbox[discovery]'" in bookie.stderr, "the warning")
    assert bookie.process is not None
    bookie.process.send_signal(signal.SIGTERM)
    assert bookie.process.wait(30) == 0


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("bookie-1", "bookie-1"),
        ("x" * 63, "x" * 63),
        ("10.0.0.5:3181", "10-0-0-5-3181-......"),
        ("bookie-1.example.com", "bookie-1-example-com-......"),
        ("Bookie", "bookie-......"),
        ("x" * 100, "x" * 56 + "-......"),
        ("...", "bookie-......"),
    ],
)
def test_labels(name: str, label: str) -> None:
    assert re.fullmatch(label, service_label(name))


def test_labels_of_names_that_differ_in_signs() -> None:
    names = ["rack-1", "rack.1", "rack:1", "Rack-1", "x" * 64, "x" * 65]
    assert len({service_label(name) for name in names}) == len(names)


def test_what_the_network_says_is_made_harmless() -> None:
    raw = {b"id": b"a\x1b[2Jb\xff\nc", b"admin": None, b"\xffkey": b"1"}
    assert properties_of(raw) == {"id": "a?[2Jb\ufffd?c", "admin": "", "\ufffdkey": "1"}


def test_an_interface_that_is_none() -> None:
    done = command("discover", "--interface", "eth0", check=False)
    assert done.returncode == 2
    assert "'eth0' is no address" in done.stderr
    done = command("discover", "--interface", "192.0.2.1", "--timeout", "1s", check=False)
    assert done.returncode == 1
    assert "cannot listen on 192.0.2.1" in done.stderr
