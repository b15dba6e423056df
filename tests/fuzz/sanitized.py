"""A copy of bkbox whose kernel is compiled with bounds checked and with AddressSanitizer and UBSan, to be fuzzed.

The kernel as it is installed trusts its own checks of lengths. This one aborts where they are not enough: on a read or
write outside of a buffer, on a signed overflow or a shift that C leaves undefined. An index that is out of bounds
where no exception can be raised is printed, and counts as a finding for that. Wants gcc.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parents[2]
FOLDER = Path("build", "fuzz", "sanitized").resolve()
_FLAGS = (
    "-O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined"
    " -fno-sanitize=alignment -fno-sanitize-recover=undefined"
)
_UNCHECKED = '"boundscheck": False'


def build() -> None:
    """Make the copy, or bring it up to date: what has changed since is compiled again."""
    ignored = shutil.ignore_patterns("*.so", "__pycache__", "build")
    for name in ("bkbox", "tests"):
        shutil.copytree(HERE / name, FOLDER / name, ignore=ignored, dirs_exist_ok=True)
    recipe = (HERE / "setup.py").read_text(encoding="utf-8")
    assert _UNCHECKED in recipe
    recipe = recipe.replace(_UNCHECKED, '"boundscheck": True').replace('"-O3", "-g0", "-w"', "")
    (FOLDER / "setup.py").write_text(recipe, encoding="utf-8")
    subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"],
        cwd=FOLDER,
        env={**os.environ, "CFLAGS": _FLAGS, "LDFLAGS": _FLAGS, "BKBOX_REQUIRE_KERNEL": "1"},
        check=True,
        stdout=subprocess.DEVNULL,
    )


def start(module: str, arguments: list[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run a module of the copy."""
    environment = {
        **os.environ,
        "LD_PRELOAD": " ".join(map(_library, ("libasan.so", "libubsan.so"))),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        "PYTHONMALLOC": "malloc",  # so that each object ends where its memory ends
    }
    for name in ("PYTHONPATH", "BKBOX_KERNEL"):
        environment.pop(name, None)
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=FOLDER,
        env=environment,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=timeout_s,
    )


def _library(name: str) -> str:
    found = subprocess.run(
        ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    )
    return found.stdout.strip()
