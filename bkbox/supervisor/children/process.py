"""One child process: watched through a pidfd, stopped in order or killed. Children are started in child_pool.py."""

from __future__ import annotations

import asyncio
import os
import signal

from bkbox.base.values import frozen_struct
from bkbox.ipc.async_channel import AsyncChannel
from bkbox.ipc.channel import Handler
from bkbox.ipc.messages.message import Message
from bkbox.ipc.messages.process import ChildStarted
from bkbox.supervisor.children.child_pool import ChildHandle


@frozen_struct
class Exit:
    """The end of a process: its exit status, or the negative signal number."""

    status: int

    def __str__(self) -> str:
        if self.status < 0:
            return f"killed by {signal.Signals(-self.status).name}"
        return f"exit status {self.status}"


class Child:
    """A child that runs or has ended. ``name`` is for people; ``kernel``: the one it runs, empty until it said so.
    Descriptors sent by the child are not accepted.
    """

    def __init__(self, handle: ChildHandle, name: str, on_message: Handler | None = None) -> None:
        def receive(message: Message, fds: list[int]) -> None:
            for fd in fds:
                os.close(fd)
            if isinstance(message, ChildStarted):
                self.kernel = message.kernel
            elif on_message is not None:
                on_message(message, [])

        self.name = name
        self.kernel = ""
        self.control = AsyncChannel(handle.control, on_message=receive)
        self._process = handle.process
        self._loop = asyncio.get_running_loop()
        self._exited: asyncio.Future[Exit] = self._loop.create_future()
        self._pidfd = os.pidfd_open(handle.process.pid)
        self._loop.add_reader(self._pidfd, self._reap)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return not self._exited.done()

    async def wait(self) -> Exit:
        """Wait until the process has ended."""
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
