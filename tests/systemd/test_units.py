"""The units: what systemd's own tools say of them, and what they and the code have to agree on."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.main import main
from bkbox.config.schema import SCHEMA

ROOT = Path(__file__).parents[2]
UNITS = ("bkbox.service", "bkbox@.service")


class _Unit(configparser.RawConfigParser):
    def optionxform(self, optionstr: str) -> str:
        return optionstr


def service(name: str) -> dict[str, str]:
    """The [Service] section; of a key that is given several times the last."""
    unit = _Unit(strict=False)
    unit.read_string((ROOT / "systemd" / name).read_text())
    return dict(unit["Service"])


@pytest.fixture(scope="module")
def placed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The units with a program that is there, and the manual that they name."""
    folder = tmp_path_factory.mktemp("units")
    program = str(Path(sys.executable).parent / "bkbox")
    for name in UNITS:
        text = (ROOT / "systemd" / name).read_text()
        (folder / name).write_text(text.replace("/usr/bin/bkbox", program))
    assert CliRunner().invoke(main, ["man", str(folder / "man" / "man1")]).exit_code == 0
    return folder


def analyze(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    return subprocess.run(
        ["systemd-analyze", *words],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("unit", ["bkbox.service", "bkbox@one.service"])
def test_verify_finds_nothing(placed: Path, unit: str) -> None:
    done = analyze("verify", str(placed / unit), MANPATH=str(placed / "man"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("unit", UNITS)
def test_the_sandbox_leaves_little_exposed(placed: Path, unit: str) -> None:
    done = analyze("security", "--offline=true", "--no-pager", str(placed / unit))
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    assert found is not None, done.stdout + done.stderr
    assert float(found[1]) <= 2.0


def run(program: str, *words: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    done = subprocess.run(
        [program, *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_user_is_made(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    run("systemd-sysusers", f"--root={tmp_path}", str(ROOT / "systemd/sysusers.d/bkbox.conf"))
    assert "bkbox:x:" in (tmp_path / "etc/passwd").read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders to another user")
def test_the_folders_are_made(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()  # where the user is looked up
    (tmp_path / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\nbkbox:x:998:998::/:/bin/sh\n")
    (tmp_path / "etc/group").write_text("root:x:0:\nbkbox:x:998:\n")
    file = str(ROOT / "systemd/tmpfiles.d/bkbox.conf")
    run("systemd-tmpfiles", "--create", f"--root={tmp_path}", file)
    state = (tmp_path / "var/lib/bkbox").stat()
    assert (state.st_uid, state.st_mode & 0o777) == (998, 0o750)
    state = (tmp_path / "etc/bkbox").stat()
    assert (state.st_uid, state.st_gid, state.st_mode & 0o777) == (0, 998, 0o750)


@pytest.mark.parametrize("unit", UNITS)
def test_the_units_and_the_code_agree(unit: str) -> None:
    found = service(unit)
    assert (found["Type"], found["NotifyAccess"]) == ("notify", "main")
    assert float(found["TimeoutStopSec"]) > SCHEMA["stop_timeout_s"].metadata["default"]
    refusals = {int(code) for code in found["RestartPreventExitStatus"].split()}
    assert refusals == {ExitCode.USAGE, ExitCode.REFUSED}
    assert float(found["WatchdogSec"]) >= 30
    for key in ("ExecStart", "ExecReload"):
        program, *words = found[key].split()
        assert program == "/usr/bin/bkbox"
        command = main
        while words and not words[0].startswith("-"):
            command = command.get_command(None, words.pop(0))  # type: ignore[assignment, arg-type, union-attr]
        command.make_context("unit", words)  # type: ignore[union-attr]


def test_the_template_differs_in_names_only() -> None:
    one, many = service("bkbox.service"), service("bkbox@.service")
    assert one.keys() == many.keys()
    for key, value in many.items():
        plain = value.replace("/etc/bkbox/%i.toml", "/etc/bkbox/bkbox.toml").replace(
            "bkbox/%i", "bkbox"
        )
        assert plain == one[key], key
