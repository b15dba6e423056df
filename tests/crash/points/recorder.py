"""Runs a process under shim.c and reads what it did."""

from __future__ import annotations

import atexit
import copy
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.crash.points.filesystem import Call, Volume, read_log
from tests.crash.points.promises import Promises

SOURCE = Path(__file__).with_name("shim.c")
PROJECT = Path(__file__).parents[3]
_KILLED = -9


def compiler() -> str | None:
    """The C compiler, None where there is none."""
    return shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc") or shutil.which("clang")


@cache
def shim() -> Path:
    """The shim, compiled for this process."""
    found = compiler()
    assert found is not None, "there is no C compiler"
    folder = tempfile.mkdtemp(prefix="bkbox-shim-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    library = Path(folder) / "shim.so"
    flags = ["-O1", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(
        [found, *flags, "-o", str(library), str(SOURCE), "-lpthread", "-ldl"], check=True
    )
    return library


@dataclass(frozen=True, slots=True)
class Recording:
    """What a process did to a folder: how it was and what was promised before, and all calls and notes, in order."""

    volume: Volume
    promises: Promises
    calls: list[Call]

    @property
    def points(self) -> int:
        """Places to crash at: before each call, and after the last one."""
        return 1 + sum(call.kind != "N" for call in self.calls)

    def at_the_end(self) -> tuple[Volume, Promises]:
        """How all of it has left the folder, and what was promised by then."""
        volume, promises = copy.deepcopy((self.volume, self.promises))
        for call in self.calls:
            if call.kind == "N":
                promises.read(call.data)
            else:
                volume.apply(call)
        return volume, promises


def record(
    root: Path,
    module: str,
    arguments: Sequence[str],
    promises: Promises,
    *,
    lie: str = "",
    kill: str = "",
) -> Recording:
    """Run ``python -m module arguments NOTES`` under the shim, with ``{notes}`` replaced in the arguments.

    ``lie``, ``kill``: see shim.c. A process that is to be killed must be, any other has to end well.
    """
    volume = Volume(root)
    with tempfile.TemporaryDirectory(prefix="bkbox-log-") as side:
        log = Path(side) / "log"
        notes = os.open("/dev/null", os.O_WRONLY)
        try:
            environment = {
                **os.environ,
                "LD_PRELOAD": str(shim()),
                "POINTS_ROOT": str(root),
                "POINTS_LOG": str(log),
                "POINTS_NOTES": str(notes),
                "POINTS_LIE": lie,
                "POINTS_KILL": kill,
            }
            done = subprocess.run(
                [
                    sys.executable,
                    "-m",
                    module,
                    *(each.replace("{notes}", str(notes)) for each in arguments),
                ],
                env=environment,
                cwd=PROJECT,
                pass_fds=(notes,),
                process_group=0,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
        finally:
            os.close(notes)
        expected = _KILLED if kill else 0
        assert done.returncode == expected, f"{arguments}: {done.returncode}\n{done.stderr[-3000:]}"
        return Recording(volume, promises, read_log(log))
