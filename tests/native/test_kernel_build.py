"""``make kernel`` where it cannot be compiled, in a small kernel of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """One whose environment is this one, with what runs bkbox installed."""
    found = tmp_path / "checkout"
    native = found / "bkbox" / "native"
    native.mkdir(parents=True)
    (found / "proof").mkdir()
    for name in ("Makefile", "setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, found)
    for name in ("__init__.py", "compiled.py", "compiled.pxd", "crc32c.h", "memory.pxd"):
        shutil.copy(ROOT / "bkbox" / "native" / name, native)
    (found / "bkbox" / "__init__.py").touch()
    (found / "requirements").mkdir()
    (found / "requirements" / "run.lock").touch()
    python = found / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (found / ".venv" / "run").touch()
    return found


def make_kernel(checkout: Path, **environment: str) -> str:
    """What it prints."""
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(("BKBOX", "MAKE"))
    }
    done = subprocess.run(
        ["make", "kernel"],
        cwd=checkout,
        env=kept | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_a_kernel_that_no_longer_compiles_is_not_run_from_older_sources(checkout: Path) -> None:
    older = checkout / "bkbox" / "native" / f"compiled{SUFFIX}"
    older.touch()
    assert "bkbox will run it interpreted" in make_kernel(checkout, CC="false")
    assert not older.exists()
    assert not (checkout / ".venv" / "kernel").exists()  # so the next target tries again
