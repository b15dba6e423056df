"""bkbox commands in a folder, each a process in a session of its own, so that Ctrl-C reaches the caller alone.

They are an operator's commands (``bkbox init``, ``run``, ``cookie repair``, ``ledger write``). Each is ended
by its id, and dies with this process if that is killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

import bkbox
from bkbox.base.host.interpreter import module_command
from bkbox.errors import BkboxError
from bkbox.launcher.waiting import until, wait_until

COMMAND = module_command("bkbox.cli.main")
"""``bkbox``, of this installation."""

_COMMAND_S = 30.0
_END_S = 15.0
_EXIT_TIMEOUT_S = 60.0


def own_environment() -> dict[str, str]:
    """The environment of this process without BKBOX_ variables, which are meant for another bookie."""
    return {key: value for key, value in os.environ.items() if not key.startswith("BKBOX_")}


class Processes:
    """Commands that run in ``root``. ``environment``: theirs, but that they find this bkbox; ``failed``: what is raised
    if one fails or does not end in time."""

    def __init__(
        self, root: Path, environment: Mapping[str, str], failed: type[BkboxError]
    ) -> None:
        self.root = root
        self.failed = failed
        here = str(Path(bkbox.__file__).absolute().parent.parent)
        path = os.pathsep.join(filter(None, [here, environment.get("PYTHONPATH", "")]))
        self._environment = {**environment, "PYTHONPATH": path}
        self._processes: list[subprocess.Popen[bytes]] = []

    def spawn(
        self,
        *arguments: str,
        stdout: IO[bytes],
        stderr: IO[bytes],
        stdin: int = subprocess.DEVNULL,
        settings: Mapping[str, object] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Starts ``bkbox ARGUMENTS``. ``settings``: keys of the configuration to set through the environment."""
        given = {f"BKBOX_{key.upper()}": str(value) for key, value in (settings or {}).items()}
        process = subprocess.Popen(
            [*module_command("bkbox.launcher"), str(os.getpid()), *arguments],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=self.root,
            env=self._environment | given,
            start_new_session=True,
        )
        self._processes.append(process)
        return process

    async def run(self, *arguments: str) -> str:
        """Runs ``bkbox ARGUMENTS`` to its end; returns its output on both streams. Raises unless it exits with 0."""
        with tempfile.TemporaryFile() as output:
            process = self.spawn(*arguments, stdout=output, stderr=output)
            what = f"the end of: bkbox {' '.join(arguments)}"
            await self.until(lambda: process.poll() is not None, what, _COMMAND_S)
            return self._output(process, output, arguments)

    def run_blocking(self, *arguments: str) -> str:
        """The same, outside of an event loop and without a time-out."""
        with tempfile.TemporaryFile() as output:
            process = self.spawn(*arguments, stdout=output, stderr=output)
            process.wait()
            return self._output(process, output, arguments)

    async def until(self, condition: Callable[[], object], what: str, timeout_s: float) -> None:
        """Waits until ``condition()`` is true. Raises after ``timeout_s``."""
        if not await until(condition, timeout_s):
            raise self.failed(f"waited {timeout_s:.0f} s for {what}")

    def _output(
        self, process: subprocess.Popen[bytes], output: IO[bytes], arguments: tuple[str, ...]
    ) -> str:
        output.seek(0)
        text = output.read().decode(errors="replace").strip()
        if process.returncode != 0:
            command = f"bkbox {' '.join(arguments)}"
            raise self.failed(f"{command} ended with {process.returncode}: {text}")
        return text

    def end_all(self) -> None:
        """In order where that works, by force where not. Children of a bookie die with it."""
        running = [process for process in self._processes if process.poll() is None]
        try:
            for process in running:
                send(process.pid, signal.SIGTERM)
                send(process.pid, signal.SIGCONT)
            wait_until(lambda: all(process.poll() is not None for process in running), _END_S)
        finally:
            for process in running:
                if process.poll() is None:
                    process.kill()
            for process in self._processes:
                if process.stdin is not None:
                    with contextlib.suppress(BrokenPipeError):
                        process.stdin.close()
                process.wait()
            wait_until(
                lambda: not any(_group_lives(process.pid) for process in self._processes),
                _EXIT_TIMEOUT_S,
            )


def send(pid: int, number: signal.Signals) -> None:
    """Sends a signal; does nothing if the process is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def lives(pid: int) -> bool:
    """True if a process still runs; False for one that only has not been reaped yet."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
