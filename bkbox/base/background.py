"""Background tasks: their faults are in the log at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

_log = logging.getLogger(__name__)


def start(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """Starts a task that nobody awaits. If it ends with an error, that is logged; asyncio itself logs it only once the
    task is forgotten."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_log_fault)
    return task


def _log_fault(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("%s has ended, which is a fault", task.get_name(), exc_info=error)
