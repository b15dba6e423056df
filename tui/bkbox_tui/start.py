"""Starts the screen, or a recording without one, from the command line's arguments."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from pathlib import Path

from bkbox_tui.app import EVERY_S, Tui
from bkbox_tui.recording import Recorder
from bkbox_tui.sources import Source


def run(
    source: Source,
    record: Path | None,
    headless_s: float | None,
    wall_ms: Callable[[], int],
    *,
    plain: bool,
) -> None:
    """``plain``: the terminal has ASCII alone. Raises OperatorError, EncodingError."""
    recorder = None if record is None else Recorder(record)
    if headless_s is not None and recorder is not None:
        with recorder:
            asyncio.run(_only_record(source, recorder, headless_s))
        return
    collect_garbage_rarely()
    Tui(source, wall_ms=wall_ms, recordings=Path.cwd(), record=recorder, plain=plain).run()


def collect_garbage_rarely() -> None:
    """Makes garbage collection rare: loaded modules stay, and a frame leaves few cycles. At Python's default rate
    collections take longer than drawing."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 50)


async def _only_record(source: Source, recorder: Recorder, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        snapshot = await source.read()
        if snapshot is None:
            return
        recorder.add(snapshot)
        await asyncio.sleep(min(EVERY_S, max(0.0, end - loop.time())))
