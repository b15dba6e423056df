"""The story: its steps in order, what they hand to each other, and the table at the end."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from bkbox.client import Client, connect
from bkbox.demo.show import Show, amount
from bkbox.demo.source import Source, Stored
from bkbox.demo.stage import Stage
from bkbox.ids import LedgerId


@dataclass(slots=True)
class Scene:
    """What the steps share."""

    stage: Stage
    show: Show
    source: Source
    rng: random.Random
    manifest: list[Stored] = field(default_factory=list)
    """The files written so far."""

    ledger: LedgerId = LedgerId(0)
    """The ledger that the input is written to: 'ledger A' of the issue."""

    acknowledged: int = 0
    """Entries of it that the writer was told are safe."""

    missed: range = range(0)
    """Those that were acknowledged while bookie 1 was dead: it has none of them."""

    def client(self) -> AbstractAsyncContextManager[Client]:
        """A client of the three bookies; each step has one of its own."""
        return connect(self.stage.metadata, rng=self.rng)


@dataclass(frozen=True, slots=True)
class Told:
    """A step's line in the table."""

    entries: int
    size: int
    what: str


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the story."""

    title: str
    play: Callable[[Scene], Awaitable[Told]]


async def tell(scene: Scene, steps: Sequence[Step]) -> None:
    """Play the steps. If one fails this says which, and the error goes on."""
    show = scene.show
    rows: list[tuple[str, ...]] = []
    began = time.monotonic()
    for number, step in enumerate(steps, 1):
        show.heading(f"Step {number} of {len(steps) + 1}: {step.title}")
        step_began = time.monotonic()
        try:
            told = await step.play(scene)
        except BaseException:
            show.failed(f"step {number} failed: {step.title}")
            raise
        seconds = f"{time.monotonic() - step_began:.1f}"
        rows.append((str(number), seconds, f"{told.entries:,}", amount(told.size), told.what))
    rows.append(("all", f"{time.monotonic() - began:.1f}", "", "", "no acknowledged entry was lost"))
    show.heading(f"Step {len(steps) + 1} of {len(steps) + 1}: What happened")
    show.table(("step", "seconds", "entries", "bytes", "what was shown"), rows)
