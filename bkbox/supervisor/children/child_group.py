"""The processes of one role, such as the front-ends: a message to the role goes to every one that runs.

A process that is not running misses a message. It is told everything again when it starts.
"""

from __future__ import annotations

import asyncio

from bkbox.errors import ConnectionLostError
from bkbox.ipc.messages.message import Message
from bkbox.supervisor.children.process import Child


class ChildGroup:
    """The children of one role by number, present ones and those that have ended."""

    def __init__(self) -> None:
        self.by_number: dict[int, Child] = {}

    @property
    def running(self) -> dict[int, Child]:
        """The children that run, by number."""
        return {number: child for number, child in self.by_number.items() if child.running}

    def send(self, message: Message) -> None:
        """Send a message to each."""
        for child in self.running.values():
            child.control.send(message)

    async def call(self, message: Message, timeout_s: float | None = None) -> None:
        """Call each, all at once, and wait for every reply. One that ends meanwhile owes none. Raises the error that
        one of them reports, or TimeoutError."""
        calls = (
            child.control.call(message, timeout_s=timeout_s) for child in self.running.values()
        )
        for result in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(result, BaseException) and not isinstance(result, ConnectionLostError):
                raise result


def frontend_title(count: int, number: int) -> str:
    """The name of a front-end for people, one of ``count``."""
    return "the front-end" if count == 1 else f"front-end {number + 1}"
