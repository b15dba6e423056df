"""One child process: started with a fresh interpreter, watched through a pidfd, ended in order or by force.

A fresh interpreter (as multiprocessing calls 'spawn') and never fork: neither LevelDB nor threads nor locks survive
a fork. The child gets one end of a control channel and nothing else but the descriptors named at its start.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from bkbox.ipc import channel
from bkbox.ipc.channel import AsyncChannel, Handler


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended: exit status, or the negative number of the signal."""

    status: int

    def __str__(self) -> str:
        if self.status < 0:
            return f"killed by {signal.Signals(-self.status).name}"
        return f"exit status {self.status}"


class Child:
    """A running child. Make one with start()."""

    def __init__(
        self, role: str, name: str, process: subprocess.Popen[bytes], control: AsyncChannel
    ) -> None:
        self.role = role
        self.name = name
        self.control = control
        self._process = process
        self._loop = asyncio.get_running_loop()
        self._exited: asyncio.Future[Exit] = self._loop.create_future()
        self._pidfd = os.pidfd_open(process.pid)
        self._loop.add_reader(self._pidfd, self._reap)

    @classmethod
    def start(
        cls,
        role: str,
        name: str,
        *,
        on_message: Handler | None = None,
        keep_fds: Sequence[int] = (),
    ) -> Child:
        """Start ``python -m bkbox.<role>``. ``keep_fds`` stay open in the child under their numbers.

        Has to be called on the main thread: the child dies when the thread that started it does.
        """
        ours, theirs = channel.pair()
        with theirs:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    f"bkbox.{role}",
                    "--control-fd",
                    str(theirs.fileno()),
                    "--parent",
                    str(os.getpid()),
                    "--name",
                    name,
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), *keep_fds),
            )
        return cls(role, name, process, AsyncChannel(ours, on_message=on_message))

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return not self._exited.done()

    async def wait(self) -> Exit:
        """Until the process has ended."""
        return await asyncio.shield(self._exited)

    def kill(self) -> None:
        if self.running:
            self._process.kill()

    async def end(self, timeout_s: float) -> Exit:
        """Wait for a process that was told to stop; SIGKILL after the time-out."""
        try:
            return await asyncio.wait_for(self.wait(), timeout_s)
        except TimeoutError:
            self.kill()
            return await self.wait()

    def _reap(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._exited.set_result(Exit(self._process.wait()))
        self.control.close()
