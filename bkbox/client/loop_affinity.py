"""Binds a client and its handles to one event loop of one process, and to the client's own lifetime.

Connections belong to an event loop, and their sockets to the process that made them: a child that writes to a
connection of its parent breaks it for both. So every call is checked here first.
"""

from __future__ import annotations

import asyncio
import os

from bkbox.errors import ForkedError, HandleClosedError, WrongLoopError


class LoopAffinity:
    """Shared by a client and its readers and writers; a log's writer has one of its own. The loop is that of the
    first call.
    """

    __slots__ = ("_loop", "_pid", "closed")

    def __init__(self) -> None:
        self.closed = False
        self._pid = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None

    def check(self) -> None:
        """Check that the call is allowed. Raises HandleClosedError, ForkedError, WrongLoopError."""
        running = _running()
        if running is not None and running is self._loop and not self.closed:
            return
        self._must_be_this_process()
        if self.closed:
            raise HandleClosedError("the client is closed")
        self._must_be_this_loop(running)

    def check_loop(self) -> None:
        """The same check, but a closed client is allowed: for calls that wait for a handle, or end it. Raises
        ForkedError, WrongLoopError.
        """
        running = _running()
        if running is None or running is not self._loop:
            self._must_be_this_process()
            self._must_be_this_loop(running)

    @property
    def outlived_its_loop(self) -> bool:
        """True if the event loop was closed: nothing runs in it any more."""
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
    """The running loop of this thread. A forked process inherits none."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
