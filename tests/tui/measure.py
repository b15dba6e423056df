"""What the screen costs: ``python -m tests.tui.measure`` prints the figures of docs/screen.md.

A thousand ledgers in limbo, of which one leaves every second, 200 peers, events without end: an hour of it, as fast as
it goes. A frame is all that a new snapshot leads to: events, history, the panel, what Textual draws of it.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
from bkbox_tui.app import Tui
from bkbox_tui.keys import PANELS
from bkbox_tui.snapshot import Snapshot
from bkbox_tui.start import collect_garbage_rarely

from bkbox.api.admin.limbo import LimboLedger
from bkbox.api.admin.status import Counts, Status, StatusWarning
from tests.tui.screens import Staged, in_limbo, limbo_job, screen_of

FRAMES = 3_600
LEDGERS, PEERS = 1_000, 200
SIZE = (200, 60)


def snapshot(number: int) -> Snapshot:
    """The one of second ``number``: counts grow, a ledger leaves limbo, a warning comes and goes, processes have
    other figures."""
    status: Status = in_limbo(LEDGERS - number % LEDGERS, 100)
    warning = StatusWarning(f"warning of the kind {'abcdefgh'[number % 8] * 5}", "bkbox status")
    limbo = replace(status.limbo, done=number, entries_checked=number * 1_000)
    processes = tuple(
        replace(each, cpu_percent=float(each.pid * number % 97), memory_bytes=number << 16)
        for each in status.processes
    )
    workers = {each.disk: each for each in processes}
    disks = tuple(
        replace(
            disk,
            stages=tuple(replace(s, count=number * 1_000) for s in disk.stages),
            counts=Counts(adds=number * 1_000),
            worker=workers[disk.disk],
        )
        for disk in status.disks
    )
    status = replace(
        status,
        limbo=limbo,
        disks=disks,
        processes=processes,
        taken_ms=status.taken_ms + 1_000 * number,
        warnings=(*status.warnings, warning),
    )
    return Snapshot(1_000 * number, status, (limbo_job(),))


def ledgers(number: int) -> list[LimboLedger]:
    return [
        LimboLedger(ledger, "/data/a", "10.0.0.2:3181 is away" if ledger % 10 == 0 else "", "wait")
        for ledger in range(number % LEDGERS, LEDGERS)
    ]


async def hour(panel: str, frames: int) -> tuple[float, float, float, int]:
    """CPU milliseconds of a frame, p50, p99 and largest; and by how many bytes memory grew in the second half."""
    bookie = Staged(snapshot(0), ledgers=ledgers(0))
    bookie.peer_count = PEERS
    app = Tui(bookie, wall_ms=lambda: 0, recordings=Path("/nonexistent"))
    async with app.run_test(size=SIZE) as pilot:
        app.action_freeze()
        app.action_panel(panel)
        await pilot.pause()
        await asyncio.sleep(0.5)
        times, half, me = [], 0, psutil.Process()
        for number in range(frames):
            new = snapshot(number)
            bookie.ledgers = ledgers(number)
            began = time.process_time()
            app.view.update(new)
            app.panel.show(app.view)
            await pilot.pause()
            screen_of(app)
            times.append((time.process_time() - began) * 1_000)
            if number == frames // 2:
                gc.collect()
                half = me.memory_info().rss
        gc.collect()
        grown = me.memory_info().rss - half
    times.sort()
    return times[len(times) // 2], times[len(times) * 99 // 100], times[-1], grown


def main() -> None:
    frames = int(sys.argv[1]) if len(sys.argv) > 1 else FRAMES
    collect_garbage_rarely()
    print("| panel | CPU of a frame, p50 | p99 | largest | memory grown in the second half |")
    print("|---|---|---|---|---|")
    for name, title, _ in PANELS:
        p50, p99, largest, grown = asyncio.run(hour(name, frames))
        figures = f"{p50:.1f} ms | {p99:.1f} ms | {largest:.0f} ms | {grown / (1 << 20):.1f} MiB"
        print(f"| {title} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
