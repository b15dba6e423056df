"""The wheel in an empty environment without a compiler: installed, initialised, run, stopped."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import bkbox
from tests.harness.processes import free_port

ROOT = Path(__file__).parents[2]
NO_INDEX = re.compile(
    r"Could not fetch|Connection|Temporary failure|Name or service|NewConnectionError|Max retries"
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, and without Cython, so that nothing is compiled: kernels have tests of their own."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    leave = shutil.ignore_patterns("__pycache__", "*.so")
    for name in ("bkbox", "systemd"):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=leave)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    (folder / "hidden" / "Cython").mkdir(parents=True)
    (folder / "hidden" / "Cython" / "__init__.py").write_text("raise ImportError('not here')")
    words = ("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(source))
    subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *words],
        env={**os.environ, "PYTHONPATH": str(folder / "hidden")},
        check=True,
        capture_output=True,
    )
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def bin_folder(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the commands of an environment are in which only the wheel is installed, from wheels alone."""
    folder = tmp_path_factory.mktemp("empty") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    done = subprocess.run(
        [
            *(str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"),
            *("install", "--only-binary", ":all:", str(wheel)),
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


def run(bin_folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(bin_folder / "bkbox"), *words],
        env={"PATH": str(bin_folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


def test_a_bookie_from_the_wheel(bin_folder: Path, tmp_path: Path) -> None:
    assert run(bin_folder, "--version").stdout == f"bkbox, version {bkbox.__version__}\n"
    config = str(tmp_path / "b.toml")
    port = free_port()
    run(
        bin_folder,
        *("init", "--config", config, "--disk", str(tmp_path / "disk")),
        *("--metadata", f"sqlite:{tmp_path}/m.db", "--listen", f"127.0.0.1:{port}"),
    )
    with subprocess.Popen(
        [str(bin_folder / "bkbox"), "run", "--config", config],
        env={"PATH": str(bin_folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as bookie:
        try:
            assert bookie.stdout is not None
            assert bookie.stdout.readline() == f"ready 127.0.0.1:{port}\n"
            status = run(bin_folder, "status", "--config", config, "--timeout", "30").stdout
            assert re.search(r"^state +running$", status, re.MULTILINE)
            bookie.send_signal(signal.SIGTERM)
            assert bookie.wait(30) == 0
        finally:
            bookie.kill()


def test_what_is_no_code_is_in_the_wheel_as_well(bin_folder: Path) -> None:
    program = (
        "from bkbox.cli import systemd; from pathlib import Path; import bkbox;"
        "print(*sorted(str(p.relative_to(systemd._UNITS)) for p in systemd._UNITS.rglob('*') if p.is_file()));"
        "print((Path(bkbox.__file__).parent / 'py.typed').exists())"
    )
    done = subprocess.run(
        [str(bin_folder / "python"), "-c", program], capture_output=True, text=True, check=True
    )
    units, typed = done.stdout.splitlines()
    assert units.split() == [
        "bkbox.service",
        "bkbox@.service",
        "sysusers.d/bkbox.conf",
        "tmpfiles.d/bkbox.conf",
    ]
    assert typed == "True"
