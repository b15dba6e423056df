"""The Pythons that wheels are made for: those of the classifiers in pyproject.toml."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

from release.commands import ROOT, NotMadeError

_USABLE = (
    "import ensurepip, os, sys, sysconfig, venv; sys.exit(f'{sys.version_info.major}.{sys.version_info.minor}' != "
    "sys.argv[1] or not os.path.exists(os.path.join(sysconfig.get_path('include'), 'Python.h')))"
)
_HEADERS = "import sysconfig; print(sysconfig.get_path('include')); print(sysconfig.get_config_var('MULTIARCH') or '')"


def supported(pyproject: str) -> list[str]:
    """Oldest first."""
    classifiers = tomllib.loads(pyproject)["project"]["classifiers"]
    found = (
        re.fullmatch(r"Programming Language :: Python :: 3\.(\d+)", each) for each in classifiers
    )
    return [f"3.{minor}" for minor in sorted(int(each[1]) for each in found if each)]


def find(version: str) -> Path:
    """One from PATH, or from uv, that makes environments and has C headers. Raises NotMadeError."""
    for candidate in _candidates(version):
        done = subprocess.run(
            [candidate, "-c", _USABLE, version], capture_output=True, cwd=ROOT, check=False
        )
        if done.returncode == 0:
            return Path(candidate)
    raise NotMadeError(
        f"no python{version} with venv and headers on PATH: apt install python{version}-venv python{version}-dev, "
        f"or uv python install {version}"
    )


def headers(python: Path) -> tuple[Path, str]:
    """The folder of its C headers, and Debian's name of the machine that it was made for, such as x86_64-linux-gnu."""
    arguments = [str(python), "-c", _HEADERS]
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=ROOT, check=True)
    include, machine = done.stdout.splitlines()
    return Path(include), machine


def _candidates(version: str) -> list[str]:
    found = subprocess.run(
        ["which", "-a", f"python{version}"], capture_output=True, text=True, check=False
    ).stdout.splitlines()
    if shutil.which("uv"):
        arguments = ["uv", "python", "find", "--no-project", version]
        found += subprocess.run(
            arguments, capture_output=True, text=True, check=False
        ).stdout.splitlines()
    return found
