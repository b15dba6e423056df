"""Programs that a release runs: their output goes into one log."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORK = ROOT / "build" / "release"
DIST = ROOT / "dist"
LOG = WORK / "log"
TRIAL = ROOT / "release" / "trial.sh"


class NotMadeError(Exception):
    """A file of the release cannot be made; the text says why, and what to do."""


def run(*words: str | Path, cwd: Path = ROOT, environ: Mapping[str, str] | None = None) -> None:
    """Run a program to its end, with ``environ`` added to ours. Raises NotMadeError if it fails."""
    command = [str(word) for word in words]
    with LOG.open("a") as log:
        print("$", *command, file=log, flush=True)
        try:
            done = subprocess.run(
                command,
                cwd=cwd,
                env={**_inherited(os.environ), **(environ or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                check=False,
            )
        except FileNotFoundError:
            raise NotMadeError(f"{command[0]} is not installed") from None
    if done.returncode != 0:
        name = Path(command[0]).name
        raise NotMadeError(f"{name} ended with {done.returncode}: see the end of {LOG}")


def _inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """Ours, without what a shell has set for another Python."""
    return {key: value for key, value in environ.items() if not key.startswith("PYTHON")}
