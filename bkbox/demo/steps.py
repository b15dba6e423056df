"""The steps of the demo in their order, and the table at the end."""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

from bkbox.demo import fenced, killed, lost_disk, readback
from bkbox.demo.cluster import Cluster
from bkbox.demo.output import Output, amount
from bkbox.demo.source import Source
from bkbox.demo.state import DemoState, StepResult
from bkbox.errors import CallerError
from bkbox.native import kernel_in_use

_COPIES = 3
_FREE_BYTES_MIN = 50_000_000
"""Extra space for indexes, logs and metadata."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the demo."""

    title: str
    run: Callable[[DemoState], Awaitable[StepResult]]


STEPS = (
    Step("Append real data to a ledger", killed.append),
    Step("SIGKILL a bookie in the middle of the writing", killed.kill),
    Step("Take a whole disk away from another bookie", lost_disk.lose),
    Step("Recover a ledger while its writer hangs", fenced.fence),
    Step("Stop the third bookie and read everything back", readback.read_back),
)


async def run_steps(cluster: Cluster, output: Output, source: Source, rng: random.Random) -> None:
    """Runs all steps. If a step fails, prints which, and the error is raised on."""
    rows: list[tuple[str, ...]] = []
    count = len(STEPS) + 1
    began = time.monotonic()
    doing = "the start of the bookies"
    try:
        _require_space(cluster, source)
        await _start_bookies(cluster, output)
        async with AsyncExitStack() as stack:
            state = DemoState(cluster, output, source, rng, stack)
            for number, step in enumerate(STEPS, 1):
                doing = f"step {number}, {step.title}"
                output.heading(f"Step {number} of {count}: {step.title}")
                step_began = time.monotonic()
                result = await step.run(state)
                seconds = f"{time.monotonic() - step_began:.1f}"
                rows.append(
                    (str(number), seconds, f"{result.entries:,}", amount(result.size), result.what)
                )
    except BaseException:
        output.failed(f"{doing}, did not come to its end")
        raise
    output.heading(f"Step {count} of {count}: What happened")
    output.table(("step", "seconds", "entries", "bytes", "what was shown"), rows)
    output.proved(
        f"all of it in {time.monotonic() - began:.1f} s, and nothing acknowledged was lost"
    )


def _require_space(cluster: Cluster, source: Source) -> None:
    needed = source.size * _COPIES + _FREE_BYTES_MIN
    free = shutil.disk_usage(cluster.root).free
    if free < needed:
        raise CallerError(
            f"the demo needs about {amount(needed)} in {cluster.root}, and {amount(free)} are free: choose "
            f"another folder with --keep or the environment variable TMPDIR"
        )


async def _start_bookies(cluster: Cluster, output: Output) -> None:
    output.explain(
        "Three bookies (storage servers of Apache BookKeeper) start on this machine, each with two disks "
        "(folders here) and five processes: a supervisor, a front-end, a worker per disk, a repair "
        f"worker. They share one metadata file. Everything lies in {cluster.root}. Their kernel, the code that runs "
        f"for each entry, is {kernel_in_use()}."
    )
    bookies = [cluster.add_bookie() for _ in range(3)]
    # With the real figures bookies would refuse entries on a machine whose disk is nearly full.
    await asyncio.gather(
        *(
            bookie.init(ack_after="write", disk_usage_max=1.0, disk_reserve_bytes=0)
            for bookie in bookies
        )
    )
    await asyncio.gather(*(bookie.start() for bookie in bookies))
    output.proved("ready: " + ", ".join(f"{bookie.name} on {bookie.id}" for bookie in bookies))
