"""What the supervisor asks of every process, and what each tells it."""

from __future__ import annotations

from typing import Any

from bkbox.ipc.messages.message import Message


class ChildStarted(Message, to="supervisor"):
    """Unsolicited, the first message of each child (ipc/child.py). ``kernel``: 'compiled' or 'interpreted'."""

    kernel: str


class GetStats(Message, to="worker frontend repair"):
    """Reply: Stats."""


class Stats(Message):
    values: dict[str, Any]


class Stop(Message, to="worker frontend repair"):
    """Finish the requests in flight, make them durable and exit. Reply: Stopped."""


class Stopped(Message):
    """``clean``: everything is durable, the dirty marker may be cleared. ``durable``: as in DiskStore."""

    clean: bool
    reason: str = ""
    durable: list[int] | None = None


class Settings(Message, to="worker frontend repair"):
    """All configuration keys that can change at run time, with their present values. No reply."""

    values: dict[str, Any]
