"""The program that makes a release: what it takes from the project's files, and what it says of what it cannot make."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest

import bkbox
from release import __main__ as program
from release import commands, contents, debian, pythons, sources, wheels
from release.commands import ROOT, NotMadeError

PYPROJECT = (ROOT / "pyproject.toml").read_text()
VERSION = tomllib.loads(PYPROJECT)["project"]["version"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folders that the program writes to."""
    for module in (commands, program, sources, wheels, debian):
        for name in ("DIST", "WORK"):
            monkeypatch.setattr(module, name, tmp_path / name, raising=False)
    monkeypatch.setattr(commands, "LOG", tmp_path / "log")
    return tmp_path


def test_the_pythons_are_those_of_the_project() -> None:
    text = '[project]\nclassifiers = ["Programming Language :: Python :: 3", "Programming Language :: Python :: 3.9"'
    assert pythons.supported(f'{text}, "Programming Language :: Python :: 3.11"]') == [
        "3.9",
        "3.11",
    ]
    versions = pythons.supported(PYPROJECT)
    assert versions[0] == tomllib.loads(PYPROJECT)["project"]["requires-python"][2:6]


def test_a_python_that_is_there_and_one_that_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = subprocess.run(
        [pythons.find(version), "--version"], capture_output=True, text=True, check=True
    )
    assert found.stdout.startswith(f"Python {version}.")
    with pytest.raises(NotMadeError, match=r"no python3\.99 .* apt install python3\.99-venv"):
        pythons.find("3.99")


def test_a_cross_compiler_finds_the_headers_of_debian_s_python(tmp_path: Path) -> None:
    include, machine = pythons.headers(pythons.find(f"3.{sys.version_info.minor}"))
    assert (include / "Python.h").is_file()
    assert machine == "" or "linux" in machine
    own = tmp_path / "include" / "x86_64-linux-gnu" / "python3.99"
    own.mkdir(parents=True)
    (own / "pyconfig.h").write_text("#define SIZEOF_LONG 8\n")
    wheels.link_headers(
        tmp_path / "include" / "python3.99", "x86_64-linux-gnu", tmp_path / "debian"
    )
    found = tmp_path / "debian" / "aarch64-linux-gnu" / "python3.99" / "pyconfig.h"
    assert found.read_text() == "#define SIZEOF_LONG 8\n"
    wheels.link_headers(tmp_path / "opt" / "python3.99", "x86_64-linux-gnu", tmp_path / "other")
    assert list((tmp_path / "other").iterdir()) == []


def test_constraints_have_versions_and_markers_and_no_hashes() -> None:
    one = "a==1 \\\n    --hash=sha256:00 \\\n    --hash=sha256:11\n    # via b\n"
    lock = one + "b==2 ; os_name == 'nt' \\\n    --hash=sha256:22\n"
    assert wheels.constraints(lock) == "a==1\n    # via b\nb==2 ; os_name == 'nt'\n"


def test_a_package_for_a_debian_is_older_than_one_for_the_next() -> None:
    changelog = (ROOT / "debian" / "changelog").read_text()
    assert bkbox.__version__ == VERSION
    assert changelog.startswith(f"bkbox ({VERSION}) ")
    tops = [debian.backported(changelog, suite) for suite in debian.SUITES]
    versions = [re.findall(r"^bkbox \((\S+)\) ", top, re.MULTILINE)[0] for top in tops]
    assert versions == [f"{VERSION}~deb12", f"{VERSION}~deb13"]
    assert all(top.endswith(changelog) for top in tops)
    for top in tops:
        added, last = re.findall(r"^ -- .*>  (.*)$", top, re.MULTILINE)[:2]
        assert parsedate_to_datetime(added) > parsedate_to_datetime(last)


def test_checksums_are_those_of_sha256sum(tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    dist.mkdir()
    (dist / "b").write_bytes(b"2")
    (dist / "a").write_bytes(b"1")
    for _ in range(2):
        contents.make_sums(dist)
        assert (dist / "SHA256SUMS").read_text().count("\n") == 2
    check = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    assert subprocess.run(check, cwd=dist, capture_output=True, check=False).returncode == 0
    (dist / "a").write_bytes(b"other")
    assert subprocess.run(check, cwd=dist, capture_output=True, check=False).returncode == 1


def test_what_fails_is_in_the_log(tmp_path: Path) -> None:
    commands.run("sh", "-c", "echo $A$PYTHONPATH", environ={"A": "one"})
    with pytest.raises(NotMadeError, match="sh ended with 3: see the end of"):
        commands.run("sh", "-c", "echo wrong >&2; exit 3")
    with pytest.raises(NotMadeError, match="no-such-program is not installed"):
        commands.run("no-such-program")
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines[1::2] == ["one", "wrong"]


def test_what_cannot_be_made_is_told_and_the_rest_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(tree: Path, version: str) -> None:
        if version == pythons.supported(PYPROJECT)[0]:
            raise NotMadeError("no compiler")
        (tmp_path / "DIST" / f"{version}.whl").touch()

    monkeypatch.setattr(sources, "make", lambda: ROOT)
    monkeypatch.setattr(wheels, "make", fails)
    monkeypatch.setattr(program, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["release", "wheels"])
    assert program.main() == 1
    said = capsys.readouterr()
    oldest, *others = pythons.supported(PYPROJECT)
    assert f"not as it should be: wheel for Python {oldest}: no compiler\n" in said.err
    made = (tmp_path / "DIST" / "SHA256SUMS").read_text().splitlines()
    assert [line.split()[1] for line in made] == [f"{version}.whl" for version in others]


def test_a_part_that_there_is_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["release", "wheel"])
    with pytest.raises(SystemExit):
        program.main()
    assert "no such part: wheel; there are wheels, aarch64, debian" in capsys.readouterr().err


def test_changes_that_are_in_no_commit_are_not_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "ROOT", tmp_path / "checkout")
    (tmp_path / "checkout").mkdir()
    with pytest.raises(NotMadeError, match="not a git repository"):
        sources.make()
    subprocess.run(["git", "init", "--quiet", tmp_path / "checkout"], check=True)
    (tmp_path / "checkout" / "new").touch()
    with pytest.raises(NotMadeError, match="has changes that no commit has"):
        sources.make()
