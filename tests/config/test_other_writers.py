"""A configuration that others than the bookie's user may write is refused: it can name what the bookie runs."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from bkbox.base.host.writers import writable_by_others
from bkbox.cli.lib.exit_codes import ExitCode
from tests.harness.fixtures import MakeBookie
from tests.harness.processes import bkbox, free_port
from tests.harness.waiting import wait_for

OTHER = 65534


@pytest.fixture
def file(tmp_path: Path) -> Path:
    folder = tmp_path / "etc"
    folder.mkdir(mode=0o755)
    found = folder / "bookie.toml"
    found.touch(mode=0o644)
    return found


def problems(file: Path) -> list[str]:
    return writable_by_others(file, os.geteuid())


def test_what_only_its_owner_may_write(file: Path) -> None:
    assert problems(file) == []
    assert problems(file.with_name("none")) == []
    file.parent.chmod(0o1777)
    assert problems(file) == [], "as in /tmp: nobody can put another in its place"


@pytest.mark.parametrize("mode", [0o666, 0o602, 0o777])
def test_a_file_that_all_may_write(file: Path, mode: int) -> None:
    file.chmod(mode)
    [problem] = problems(file)
    assert problem.startswith(f"{file}: every user may write this file")
    assert problem.endswith(f"chmod go-w {file}")


def test_a_folder_in_which_all_may_put_another(file: Path) -> None:
    file.parent.chmod(0o777)
    [problem] = problems(file)
    assert problem.startswith(f"{file.parent}: every user may write this folder")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_groups_and_other_owners(file: Path) -> None:
    file.chmod(0o664)
    assert problems(file) == [], "the group of its owner alone"
    os.chown(file, -1, OTHER)
    assert "may write this file (mode 0664): chmod g-w" in problems(file)[0]
    os.chown(file, OTHER, 0)
    file.chmod(0o600)
    [problem] = problems(file)
    assert "belongs to user" in problem
    assert writable_by_others(file, OTHER) == []
    os.chown(file, 0, 0)
    os.chown(file.parent, OTHER, OTHER)
    assert "this folder belongs to user" in problems(file)[0]


def test_a_link_is_as_safe_as_what_it_leads_to(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.toml"
    link.symlink_to(file)
    assert problems(link) == []
    file.parent.chmod(0o777)
    assert len(problems(link)) == 1


@pytest.mark.parametrize("what", ["file", "folder", "program"])
def test_such_a_bookie_does_not_start_and_the_doctor_says_why(
    make_bookie: MakeBookie, tmp_path: Path, what: str
) -> None:
    script = tmp_path / "racks.sh"
    script.write_text("#!/bin/sh\necho /rack\n")
    script.chmod(0o755)
    bookie = make_bookie(disks=1, topology_script=script)
    loose = {"file": bookie.config, "folder": bookie.config.parent, "program": script}[what]
    mode = loose.stat().st_mode
    loose.chmod(mode | 0o002)
    done = bkbox("run", "--config", str(bookie.config), check=False)
    assert done.returncode == ExitCode.REFUSED
    assert f"{loose}: every user may write this" in done.stderr
    assert done.stdout == ""
    validated = bkbox("config", "validate", "--config", str(bookie.config), check=False)
    assert validated.returncode == ExitCode.USAGE
    assert validated.stdout.startswith(f"{loose}: every user may write this")
    assert validated.stdout.count("\n") == 1
    examined = bkbox("doctor", "--config", str(bookie.config), "-o", "json", check=False)
    [finding] = [
        each
        for each in json.loads(examined.stdout)["findings"]
        if each["check"] == "configuration" and each["verdict"] == "fail"
    ]
    assert finding["command"] == f"chmod go-w {loose}"
    loose.chmod(mode)
    bookie.start()
    loose.chmod(mode | 0o002)
    assert bookie.process is not None
    bookie.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "SIGHUP: the configuration is not taken over" in bookie.stderr, "the refusal")
    assert bookie.stop() == 0


def test_what_init_makes_starts_whatever_the_umask(tmp_path: Path) -> None:
    config = tmp_path / "new" / "bookie.toml"
    words = ["init", "--config", str(config), "--metadata", f"sqlite:{tmp_path}/m.db"]
    words += ["--disk", str(tmp_path / "disk"), "--listen", f"127.0.0.1:{free_port()}"]
    before = os.umask(0)
    try:
        bkbox(*words)
    finally:
        os.umask(before)
    assert problems(config) == []
    assert config.stat().st_mode & 0o777 == 0o644
