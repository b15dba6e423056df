"""What lies in the working directory is not imported: not by a command, nor by a process that one starts."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import bkbox as product
from tests.harness.processes import BKBOX, BookieProcess

NAMES = (
    "bkbox",
    "proof",
    "json",
    "select",
    "plyvel",
    "plyvel_next",
    "logging",
    "asyncio",
    "socket",
    "struct",
)
COMMAND = Path(sys.executable).with_name("bkbox")
PRODUCT = Path(product.__file__).parent


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with modules and packages that cannot be imported."""
    found = tmp_path / "working"
    for name in NAMES:
        (found / name).mkdir(parents=True)
        text = "import os\nos.write(2, b'imported from the working directory')\nos._exit(77)\n"
        (found / name / "__init__.py").write_text(text)
        (found / f"{name}.py").write_text(text)
    monkeypatch.chdir(found)
    return found


def run(*arguments: str, stdin: str = "") -> str:
    """Run the installed command, in the working directory."""
    done = subprocess.run(
        [COMMAND, *arguments], input=stdin, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    return done.stdout


def test_the_modules_would_be_imported(folder: Path) -> None:
    unsafe = [each for each in BKBOX if each != "-P"]
    done = subprocess.run([*unsafe, "--version"], capture_output=True, text=True, check=False)
    assert done.returncode == 77
    assert "imported from the working directory" in done.stderr


def test_a_bookie_and_its_children(folder: Path, tmp_path: Path) -> None:
    metadata = f"sqlite:{tmp_path / 'cluster.db'}"
    bookie = BookieProcess(tmp_path, metadata).init().start()
    try:
        one = ("--metadata", metadata)
        run("ledger", "write", *one, "-e", "1", stdin="first\nsecond\n")
        assert run("ledger", "read", "0", *one) == "first\nsecond\n"
        status = bookie.status()
        assert status["state"] == "running"
        assert {each["role"] for each in status["processes"]} == {
            "supervisor",
            "frontend",
            "worker",
            "repair",
        }
        assert all(each["running"] and not each["restarts"] for each in status["processes"])
        run("doctor", "--config", str(bookie.config), "-o", "json")
        run("audit", *one, "--read", "--jobs", "2", "-o", str(tmp_path / "audit"))
        run("job", "list", "--config", str(bookie.config))
        run("scrub", "run", "--config", str(bookie.config))  # a job of the repair process
    finally:
        assert bookie.stop() == 0
    assert "imported from" not in bookie.stderr


@pytest.mark.parametrize("kind", ["bookie", "client"])
def test_a_benchmark(folder: Path, kind: str) -> None:
    run("bench", kind, "--seconds", "0.2")


def test_a_selftest(folder: Path, tmp_path: Path) -> None:
    run("selftest", "--folder", str(tmp_path), "--seconds", "0.3")


def test_a_demo(folder: Path) -> None:
    run("demo")


def test_interpreters_are_started_in_one_way() -> None:
    """That of interpreter.py: who names ``sys.executable`` in a command has another."""
    found = []
    for path in PRODUCT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.List | ast.Tuple) and any(
                isinstance(each, ast.Attribute) and each.attr == "executable" for each in node.elts
            ):
                found.append(str(path.relative_to(PRODUCT)))
    assert found == ["base/host/interpreter.py"]
