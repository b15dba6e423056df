"""bkbox as somebody has it who has only the wheel: an environment of its own, made once per test process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.host.buildcontext import copy_into

NO_INDEX = re.compile(
    r"Could not fetch|Connection|Temporary failure|Name or service|NewConnectionError|Max retries|"
    r"error sending request"
)


def build_wheel(folder: Path) -> Path:
    """Built from what the container is built from."""
    source = folder / "source"
    copy_into(source)
    return wheel_of(source, folder)


def wheel_of(source: Path, folder: Path) -> Path:
    """Built without Cython, so that nothing is compiled: kernels have tests of their own."""
    words = ("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(source))
    subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *words],
        env=without_cython(folder),
        check=True,
        capture_output=True,
    )
    (made,) = folder.glob("*.whl")
    return made


def without_cython(folder: Path) -> dict[str, str]:
    """The environment of a build that finds none; ``folder`` is where it is hidden."""
    package = folder / "hidden" / "Cython" / "__init__.py"
    package.parent.mkdir(parents=True)
    package.write_text("raise ImportError('not here')")
    return {**os.environ, "PYTHONPATH": str(folder / "hidden")}


def install(what: str, folder: Path) -> Path:
    """Where the commands are of a new environment in which only that is installed, from wheels alone."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    done = subprocess.run(
        [
            *(str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"),
            *("install", "--only-binary", ":all:", what),
        ],
        env={"PATH": str(folder / "bin"), "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0 and NO_INDEX.search(done.stderr):
        pytest.skip("no package index can be reached, so what bkbox needs cannot be installed")
    assert done.returncode == 0, done.stderr
    return folder / "bin"


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def bin_folder(wheel: Path) -> Path:
    """Its commands."""
    return install(f"{wheel}[tui]", wheel.parent / "venv")
