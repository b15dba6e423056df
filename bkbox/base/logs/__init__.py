"""The log of every process of bkbox: one handler on standard error, set up when a process begins.

A module uses its own logger (``logging.getLogger(__name__)``), with searchable facts in ``extra``. The form of a line
is in rendering.py, its context in trace.py.

========  ==========================================================================================
console   a line for people: time, level, message, facts
json      one object a line: time, level, logger, process, message (``event``), facts
========  ==========================================================================================

Under journald (``JOURNAL_STREAM`` names this standard error) each line is preceded by its priority, ``<4>``, and none
has the time, which the journal has. See sd-daemon(3).

A logging call does not wait for the write: a background thread writes. It is started with the first line and only
then loads structlog, as that takes a disk worker longer than a hundred syncs. All lines are written before the
process ends, unless it is killed.
"""

from __future__ import annotations

import atexit
import logging
import os
import queue
import sys
import threading
import time
from contextlib import suppress
from typing import Literal, NamedTuple

from bkbox.base.logs.rate_limited import BoundLibraries
from bkbox.base.logs.trace import present
from bkbox.base.text import error_text, quoted

Layout = Literal["console", "json"]

_LAST_LINES_S = 5.0
_AGAIN_S = 0.2


class LogSettings(NamedTuple):
    """``level`` as in the configuration: debug, info, warning, error."""

    level: str = "info"
    layout: Layout = "console"

    def __str__(self) -> str:
        return f"{self.layout}:{self.level}"

    @classmethod
    def from_text(cls, text: str) -> LogSettings:
        """Parse the output of ``str``."""
        layout, _, level = text.partition(":")
        return cls(level, "json" if layout == "json" else "console")


class _Handler(logging.Handler):
    """Hands records to its thread."""

    def __init__(self, process: str, layout: Layout, hold_s: float) -> None:
        super().__init__()
        self.addFilter(BoundLibraries(time.monotonic))
        self._process = process
        self._layout = layout
        self._hold_s = hold_s
        self._ending = threading.Event()
        self._queue: queue.SimpleQueue[logging.LogRecord | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if "trace" not in record.__dict__ and (connections := present()):
            record.trace = connections  # which only this thread knows
        with suppress(Exception):  # a record without a text fails when it is written
            record.msg, record.args = record.getMessage(), None  # now: the arguments may change
        if self._thread is None:
            self._thread = threading.Thread(target=self._write, name="log", daemon=True)
            self._thread.start()
            atexit.register(self._end)
        self._queue.put(record)

    def _write(self) -> None:
        self._ending.wait(self._hold_s)
        render = self._renderer()
        while (record := self._queue.get()) is not None:
            try:
                line = render.format(record)
            except Exception as error:  # noqa: BLE001 - a line that cannot be made must not end the log
                line = (
                    f"a line of the log cannot be made: {error_text(error)}: {quoted(record.msg)}"
                )
            try:
                sys.stderr.write(f"{line}\n")
                sys.stderr.flush()
            except (OSError, ValueError):
                pass  # the reader of standard error is gone

    def _renderer(self) -> logging.Formatter:
        """Waits while the process has no descriptor left to load it with; lines are kept meanwhile."""
        while True:
            try:
                from bkbox.base.logs.rendering import formatter
            except OSError:
                time.sleep(_AGAIN_S)
            else:
                return formatter(self._process, self._layout, journal=_is_journal())

    def _end(self) -> None:
        assert self._thread is not None
        self._ending.set()
        self._queue.put(None)
        self._thread.join(_LAST_LINES_S)


def begin(process: str, settings: LogSettings, *, hold_s: float = 0.0) -> None:
    """Take over the log of this process, libraries included. ``process``: its name in the lines.

    ``hold_s``: the first lines are written this much later, so that a start does not wait for loading the writer.
    """
    logging.getLogger().handlers[:] = [_Handler(process, settings.layout, hold_s)]
    set_level(settings.level)


def set_level(level: str) -> None:
    """Set the level from now on."""
    logging.getLogger().setLevel(level.upper())
    # Libraries log at 'info' and below what only their authors want to know.
    for name in ("asyncio", "kazoo", "zeroconf"):
        logging.getLogger(name).setLevel(logging.WARNING)


def _is_journal() -> bool:
    """True if standard error goes to the journal: systemd names its device and inode."""
    device, _, inode = os.environ.get("JOURNAL_STREAM", "").partition(":")
    try:
        found = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    return (device, inode) == (str(found.st_dev), str(found.st_ino))
