"""``bkbox bench bookie``: one load on one bookie, and what it cost.

==========  ==========================================================================================
adds        new ledgers
reads       entries that have just been written
catchup     entries of which nothing is left in memory: written before, on the disk, dropped from the
            page cache; each is read once
mixed       adds to new ledgers while other connections catch up
==========  ==========================================================================================
"""

from __future__ import annotations

import os
import random
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from bkbox.bench.load import Load, Measured, Shape, measured, write_ledgers
from bkbox.bench.usage import Usage, device_written_bytes, drop_cache, usage_of
from bkbox.errors import BenchError
from bkbox.kernel.load import ADD, READ

Kind = Literal["adds", "reads", "catchup", "mixed"]

_IDLE_CPU = 0.05
_IDLE_LOOK_S = 0.5
_IDLE_WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Target:
    """A bookie. Without ``pid`` nothing is said about what it used; without ``folder``, that of its
    data, nothing can be dropped from the page cache."""

    address: tuple[str, int]
    pid: int | None = None
    folder: Path | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """How long what is to run. ``entries``: how many to read are written beforehand, over all ledgers;
    for adds the number of them instead of ``seconds``, or None. ``settle_s``: wait after writing, for
    bookies that hold entries back in memory."""

    load: Kind
    shape: Shape
    seconds: float
    warmup_s: float
    entries: int | None
    settle_s: float
    silence_s: float


@dataclass(frozen=True, slots=True)
class Cost:
    """What the bookie's processes used: CPU seconds per million requests while it counted; memory
    after that; what they, and the block device, wrote per byte of the entries added, from the first
    add until everything was on the disk."""

    cpu_s_per_million: float
    rss_bytes: int
    pss_bytes: int
    written_per_byte: float | None
    device_written_per_byte: float | None


@dataclass(frozen=True, slots=True)
class Result:
    """``load_cpu_s_per_million``: what the load generator itself used per million requests."""

    plan: Plan
    adds: Measured | None
    reads: Measured | None
    cost: Cost | None
    load_cpu_s_per_million: float

    @property
    def errors(self) -> dict[str, int]:
        """Answers with a wrong code, by its name."""
        found: dict[str, int] = {}
        for part in (self.adds, self.reads):
            for name, count in (part.errors if part else {}).items():
                found[name] = found.get(name, 0) + count
        return found

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def run(target: Target, plan: Plan, rng: random.Random) -> Result:
    """Raises BenchError, FrameError."""
    return _Run(target, plan, rng).run()


class _Run:
    def __init__(self, target: Target, plan: Plan, rng: random.Random) -> None:
        self._target = target
        self._plan = plan
        self._ledger = rng.randrange(1 << 40, 1 << 50)
        self._before = self._usage()
        self._device_before = self._device_written()

    def run(self) -> Result:
        plan = self._plan
        with Load(self._target.address, plan.silence_s) as load:
            adds, reads = [], []
            if plan.load != "adds":
                entries = self._write_ahead()
                reads = load.add(READ, plan.shape, self._ledger, entries)
                if plan.load == "catchup":
                    for stream in reads:
                        stream.end = stream.total
            if plan.load in ("adds", "mixed"):
                adds = load.add(ADD, plan.shape, self._ledger + plan.shape.ledgers)
            load.run(0 if plan.load == "catchup" else plan.warmup_s)
            load.count()
            if plan.load == "adds" and plan.entries is not None:
                for stream in adds:
                    stream.end = stream.next + plan.entries // len(adds)
            used, own = self._usage(), time.process_time()
            whole = plan.load == "adds" and plan.entries is not None
            seconds = load.run(None if whole else plan.seconds)
            used_then, own = self._usage(), time.process_time() - own
            result_adds = measured(adds, seconds) if adds else None
            result_reads = measured(reads, seconds) if reads else None
            load.finish()
            requests = sum(part.requests for part in (result_adds, result_reads) if part)
            cost = None
            if used is not None and used_then is not None:
                added = sum(stream.next for stream in adds) * (32 + plan.shape.size)
                cost = Cost(
                    cpu_s_per_million=(used_then.cpu_s - used.cpu_s) * 1e6 / max(requests, 1),
                    rss_bytes=used_then.rss_bytes,
                    pss_bytes=used_then.pss_bytes,
                    **self._written(added if plan.load == "adds" else 0),
                )
        return Result(plan, result_adds, result_reads, cost, own * 1e6 / max(requests, 1))

    def _write_ahead(self) -> int:
        """The entries to be read; how many there are in each ledger."""
        plan, folder = self._plan, self._target.folder
        entries = (plan.entries or 0) // plan.shape.ledgers
        if entries < 1:
            raise BenchError(f"there have to be entries to read: {plan.shape.ledgers} at least")
        write_ledgers(self._target.address, plan.shape, self._ledger, entries, plan.silence_s)
        if plan.load != "reads":
            if folder is None:
                raise BenchError("a cold cache needs the bookie's data folder: give --data")
            time.sleep(plan.settle_s)
            self._wait_idle()
            drop_cache(folder)
        return entries

    def _written(self, added: int) -> dict[str, float | None]:
        """What was written per byte added, once it is on the disk."""
        if self._before is None or added == 0 or self._plan.settle_s == 0:
            return {"written_per_byte": None, "device_written_per_byte": None}
        time.sleep(self._plan.settle_s)
        self._wait_idle()
        after, device = self._usage(), self._device_written()
        assert after is not None
        of_device = None
        if device is not None and self._device_before is not None:
            of_device = (device - self._device_before) / added
        of_processes = (after.written_bytes - self._before.written_bytes) / added
        return {"written_per_byte": of_processes, "device_written_per_byte": of_device}

    def _wait_idle(self) -> None:
        """Until the bookie does next to nothing in the background."""
        deadline = time.monotonic() + _IDLE_WAIT_S
        while (before := self._usage()) is not None and time.monotonic() < deadline:
            time.sleep(_IDLE_LOOK_S)
            after = self._usage()
            assert after is not None
            if after.cpu_s - before.cpu_s <= _IDLE_CPU * _IDLE_LOOK_S:
                return

    def _usage(self) -> Usage | None:
        return None if self._target.pid is None else usage_of(self._target.pid)

    def _device_written(self) -> int | None:
        if self._target.folder is None or self._plan.settle_s == 0:
            return None
        os.sync()
        return device_written_bytes(self._target.folder)
