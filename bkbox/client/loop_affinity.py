"""What ties a client and its handles to one event loop of one process, and to the client's own life.

Connections belong to an event loop, and their sockets to the process that made them: a child that writes into a
connection of its parent breaks it for both. So every call asks here first.
"""

from __future__ import annotations

import asyncio
import os

from bkbox.errors import ForkedError, HandleClosedError, WrongLoopError


class Binding:
    """Shared by a client and its readers and writers; a log's writer has one of its own. The loop is the one of the
    first call."""

    __slots__ = ("_loop", "_pid", "closed")

    def __init__(self) -> None:
        self.closed = False
        self._pid = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None

    def check(self) -> None:
        """Raises HandleClosedError, ForkedError, WrongLoopError."""
        running = _running()
        if running is not None and running is self._loop and not self.closed:
            return
        self._must_be_this_process()
        if self.closed:
            raise HandleClosedError("the client is closed")
        self._must_be_this_loop(running)

    def check_place(self) -> None:
        """The same whether the client is closed or not: for what waits for a handle, or ends it. Raises ForkedError,
        WrongLoopError."""
        running = _running()
        if running is None or running is not self._loop:
            self._must_be_this_process()
            self._must_be_this_loop(running)

    @property
    def outlived_its_loop(self) -> bool:
        """Whether the event loop was closed: nothing in it can be disturbed any more."""
        return self._loop is not None and self._loop.is_closed()

    def _must_be_this_process(self) -> None:
        if self._pid != os.getpid():
            raise ForkedError(
                f"the client was made in process {self._pid} and is used in {os.getpid()}, which was forked from it: "
                "connect again there"
            )

    def _must_be_this_loop(self, running: asyncio.AbstractEventLoop | None) -> None:
        if running is None:
            raise WrongLoopError(
                "no event loop runs in this thread: await it in a coroutine, or use bkbox.client.sync"
            )
        if self._loop is None:
            self._loop = running
        elif self._loop.is_closed():
            raise WrongLoopError(
                "the event loop that the client was made in is closed: connect again in this one"
            )
        else:
            raise WrongLoopError(
                "the client belongs to another event loop, which is still there: connect in this one"
            )


def _running() -> asyncio.AbstractEventLoop | None:
    """The loop of this thread. In a process that was forked from it there is none."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
