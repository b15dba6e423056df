"""``bkbox doctor`` on real bookies that run, do not run, and are broken in all ways that it knows."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
from pathlib import Path
from typing import Any

from tests.harness.fixtures import MakeBookie
from tests.harness.processes import BookieProcess, bkbox, put_keys
from tests.harness.waiting import wait_for

_WORSE = ("ok", "warn", "fail")

Found = dict[tuple[str, str], dict[str, Any]]


def doctor(bookie: BookieProcess) -> tuple[int, Found]:
    """Exit code, and what is not in order: the worst of each check and of what."""
    words = ("doctor", "--config", str(bookie.config), "--wait", "2", "-o", "json")
    done = bkbox(*words, check=False)
    document = json.loads(done.stdout)
    assert (document["verdict"] == "fail") == (done.returncode == 1)
    assert all(each["why"] for each in document["findings"])
    found: Found = {}
    for each in sorted(document["findings"], key=lambda each: _WORSE.index(each["verdict"])):
        found[each["check"], each["about"]] = each
    return done.returncode, found


def failed(found: Found) -> set[tuple[str, str]]:
    return {
        key for key, each in found.items() if each["verdict"] == "fail" and key[0] != "file system"
    }


def test_a_bookie_that_is_well(make_bookie: MakeBookie) -> None:
    bookie = make_bookie()
    _, down = doctor(bookie)
    assert failed(down) == set()
    assert down["bookie", ""]["command"] == f"bkbox run --config {bookie.config}"
    assert down["port", f"127.0.0.1:{bookie.port}"]["why"] == "free"
    assert down["last stop", str(bookie.disks[0])]["verdict"] == "ok"
    before = {path: path.stat().st_mtime_ns for path in bookie.root.rglob("*")}
    doctor(bookie)
    assert {path: path.stat().st_mtime_ns for path in bookie.root.rglob("*")} == before

    bookie.start()
    _, up = doctor(bookie)
    assert failed(up) == set()
    assert up["bookie", ""]["verdict"] in ("ok", "warn")  # the interpreted kernel is a warning
    assert up["port", f"127.0.0.1:{bookie.port}"]["why"] == "it answers"
    assert up["lock", str(bookie.disks[0])]["why"].startswith("held by pid")
    assert up["cookies", ""]["verdict"] == "ok"


def test_each_path_in_a_command_is_one_word_for_a_shell(make_bookie: MakeBookie) -> None:
    bookie = make_bookie("my bookie")
    bookie.disks[0].chmod(0o757)
    (bookie.disks[1] / "VERSION").unlink()
    _, found = doctor(bookie)
    commands = [each["command"] for each in found.values() if "my bookie" in each["command"]]
    assert any(command.startswith("chmod o-rwx ") for command in commands)
    assert any("--config" in command for command in commands)
    for command in commands:
        words = shlex.split(command)
        assert not any(word.startswith("bookie/") for word in words), command


def test_a_disk_that_was_lost(make_bookie: MakeBookie) -> None:
    bookie = make_bookie()
    shutil.rmtree(bookie.disks[1])
    code, found = doctor(bookie)
    assert code == 1
    assert failed(found) == {("disk", str(bookie.disks[1]))}, "one cause"
    command = found["disk", str(bookie.disks[1])]["command"]
    assert command.endswith(f"bkbox cookie repair --config {bookie.config}")
    bookie.disks[1].mkdir()
    _, found = doctor(bookie)
    assert failed(found) == {("disk", str(bookie.disks[1]))}
    assert ("last stop", str(bookie.disks[1])) not in found, "nothing is known of an empty disk"


def test_disks_that_were_edited_are_one_cause(make_bookie: MakeBookie) -> None:
    bookie = make_bookie()
    put_keys(bookie, disks=[str(disk) for disk in [*bookie.disks, bookie.root / "disk3"]])
    for started in (False, True):
        if started:
            put_keys(bookie, disks=[str(disk) for disk in bookie.disks])
            bookie.start()
            put_keys(bookie, disks=[str(disk) for disk in bookie.disks[:1]])
            wait_for(lambda: bookie.status()["cookies"]["ok"] is False, "the bookie to see it")
        code, found = doctor(bookie)
        assert code == 1
        assert failed(found) == {("cookies", "")}
        why = found["cookies", ""]["why"]
        assert all(place in why for place in ("metadata", *map(str, bookie.disks[:1])))
        others = [each["why"] for each in found.values() if "ledgerDirs" in each["why"]]
        assert others == [why]


def test_a_bookie_that_was_killed(make_bookie: MakeBookie) -> None:
    bookie = make_bookie().start()
    bookie.kill()
    code, found = doctor(bookie)
    assert code == 0 or failed(found) == set()
    assert "processes were killed" in found["last stop", str(bookie.disks[0])]["why"]
    effects = found["last stop", str(bookie.disks[0])]["effects"]
    assert {(each["check"], each["about"]) for each in effects} == {
        ("last stop", str(bookie.disks[1])),
        ("leftovers", str(bookie.disks[0] / "admin.sock")),
    }, "one kill"


def test_the_port_is_taken_and_files_lie_about(make_bookie: MakeBookie) -> None:
    bookie = make_bookie()
    (bookie.disks[0] / "core.4711").touch()
    (bookie.disks[1] / "VERSION.new").touch()
    bookie.disks[0].chmod(0o755)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", bookie.port))
        taken.listen()
        code, found = doctor(bookie)
    assert code == 1
    assert failed(found) == {("port", f"127.0.0.1:{bookie.port}")}
    assert "core.4711" in found["leftovers", str(bookie.disks[0])]["why"]
    assert "VERSION.new" in found["leftovers", str(bookie.disks[1])]["why"]
    assert found["permissions", str(bookie.disks[0])]["verdict"] == "warn"


def test_somebody_else_holds_a_disk(make_bookie: MakeBookie) -> None:
    from bkbox.storage.disk.lock import DiskLock

    bookie = make_bookie()
    lock = DiskLock(bookie.disks[0])
    try:
        _, found = doctor(bookie)
    finally:
        lock.release()
    assert failed(found) == {("lock", str(bookie.disks[0]))}
    assert f"pid {os.getpid()}" in found["lock", str(bookie.disks[0])]["why"]


def test_the_metadata_store_is_away(make_bookie: MakeBookie, tmp_path: Path) -> None:
    bookie = make_bookie()
    (tmp_path / "metadata.db").unlink()
    _, found = doctor(bookie)
    assert failed(found) == {("metadata store", bookie.metadata)}


def test_a_wrong_configuration_does_not_hide_the_host(make_bookie: MakeBookie) -> None:
    bookie = make_bookie()
    bookie.config.write_text(bookie.config.read_text() + "\nno_such_key = 1\n")
    code, found = doctor(bookie)
    assert code == 1
    assert {key[0] for key in failed(found)} == {"configuration"}
    assert any(check == "limits" for check, _ in found)


def test_a_full_disk(make_bookie: MakeBookie) -> None:
    bookie = make_bookie(disk_usage_max=0.01, disk_usage_resume=0.001)
    _, found = doctor(bookie)
    assert failed(found) == {("space", str(bookie.disks[0]))}, "both are on one file system"
    (other,) = found["space", str(bookie.disks[0])]["effects"]
    assert other["about"] == str(bookie.disks[1])
