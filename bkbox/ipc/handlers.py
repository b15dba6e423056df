"""Dispatch of control messages: one table per process, from the type of a message to the function that handles it.

Each part of a process registers the handlers of its own messages. The simulated processes dispatch through the same
tables.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence, Set
from typing import Any, TypeVar

from bkbox.errors import BkboxError, BugError
from bkbox.ipc.channel import refusal
from bkbox.ipc.messages.message import Done, Message

_M = TypeVar("_M", bound=Message)


class Handlers:
    """The control messages that a process takes at present, each with its handler.

    A handler returns the reply to a call; None stands for Done.
    """

    def __init__(self) -> None:
        self._handlers: dict[type[Message], Callable[[Any, Sequence[int]], Message | None]] = {}

    @property
    def types(self) -> Set[type[Message]]:
        """The types of messages that have a handler."""
        return self._handlers.keys()

    def on(self, kind: type[_M], handler: Callable[[_M], Message | None]) -> None:
        """Handle messages of this type."""
        self._handlers[kind] = lambda message, _fds: handler(message)

    def on_fd(self, kind: type[_M], handler: Callable[[_M, int], Message | None]) -> None:
        """Handle messages of this type, which come with one descriptor. It is closed once the handler returns; a
        handler that keeps it duplicates it."""
        self._handlers[kind] = lambda message, fds: handler(message, fds[0])

    def handle(self, message: Message, fds: Sequence[int] = ()) -> Message | None:
        """Handle a message and close its descriptors. Returns the reply to a call, which is Refused after a BkboxError;
        None if the message is not a call. Raises the BkboxError of a message that is not a call."""
        try:
            reply = self._call(message, fds) or Done()
        except BkboxError as error:
            if not message.call:
                raise
            reply = refusal(error)
        finally:
            for fd in fds:
                os.close(fd)
        reply.call = message.call
        return reply if message.call else None

    def _call(self, message: Message, fds: Sequence[int]) -> Message | None:
        handler = self._handlers.get(type(message))
        if handler is None:
            raise BugError(f"this process does not take {type(message).__name__}, or not yet")
        return handler(message, fds)
