"""``bkbox bench bookie``: one load on one bookie, and its cost.

==========  ==========================================================================================
adds        new ledgers
reads       entries that have just been written
catchup     cold reads: entries written before, on the disk, dropped from memory and from the page cache;
            each is read once
mixed       adds to new ledgers while other connections catch up
==========  ==========================================================================================

With a rate, adds are an open loop, and other connections read, at their share of the rate, entries that have just been
written.
"""

from __future__ import annotations

import os
import random
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from bkbox.api.admin.status import Latency, Stage
from bkbox.bench.load import Load, Measured, Shape, first_ledger, measured, write_ledgers
from bkbox.bench.load_loop import ADD, READ, Stream
from bkbox.bench.open_loop import OpenLoop, Rate, RateReport
from bkbox.bench.usage import (
    Usage,
    context_switches,
    cpu_s,
    device_written_bytes,
    drop_cache,
    stolen_s,
    tree,
    usage_of,
)
from bkbox.errors import BenchError
from bkbox.wire.digest import HEADER_BYTES

Kind = Literal["adds", "reads", "catchup", "mixed"]

_IDLE_CPU = 0.05
_IDLE_POLL_S = 0.5
_IDLE_WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Target:
    """A bookie. Without ``pid`` its resource usage is not reported; without ``folder``, that of its
    data, the page cache cannot be dropped."""

    address: tuple[str, int]
    pid: int | None = None
    folder: Path | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The load and its duration. ``entries``: how many to read are written beforehand, over all ledgers;
    for adds their number instead of ``seconds``, or None. ``settle_s``: wait after writing, for
    bookies that keep entries buffered in memory. ``rate``: an open loop of adds, None for a closed loop."""

    load: Kind
    shape: Shape
    seconds: float
    warmup_s: float
    entries: int | None
    settle_s: float
    silence_s: float
    rate: Rate | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """The resource usage of the bookie's processes: CPU seconds per million requests while it counted; context
    switches per request, warm-up included; memory after that; what they, and the block device, wrote per byte of the
    entries added, from the first add until everything was on the disk."""

    cpu_s_per_million: float
    switches_per_request: float
    rss_bytes: int
    pss_bytes: int
    written_per_byte: float | None
    device_written_per_byte: float | None


@dataclass(frozen=True, slots=True)
class Result:
    """``load_cpu_s_per_million``: what the load generator itself used per million requests; ``stolen_s``: CPU seconds
    that the host of a virtual machine kept from it while requests counted; ``stages``: where the bookie's adds spent
    their time, and ``operations``: how long adds and reads took there, if it was asked; ``rate``: how an open loop
    went."""

    plan: Plan
    adds: Measured | None
    reads: Measured | None
    cost: Cost | None
    load_cpu_s_per_million: float
    stolen_s: float
    stages: tuple[Stage, ...] = ()
    operations: tuple[Latency, ...] = ()
    rate: RateReport | None = None

    @property
    def errors(self) -> dict[str, int]:
        """Responses with an error code, by its name."""
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


class _CpuTime(NamedTuple):
    """CPU seconds of the bookie's processes, of the load generator, and those that the host kept for itself."""

    bookie_s: float
    load_s: float
    stolen_s: float

    @classmethod
    def so_far(cls, pids: list[int]) -> _CpuTime:
        return cls(cpu_s(pids), time.process_time(), stolen_s())

    def since(self, before: _CpuTime) -> _CpuTime:
        return _CpuTime(*(now - then for now, then in zip(self, before, strict=True)))


class _Run:
    def __init__(self, target: Target, plan: Plan, rng: random.Random) -> None:
        self._target = target
        self._plan = plan
        self._ledger = first_ledger(rng)
        self._before = self._usage()
        self._device_before = self._device_written()

    def run(self) -> Result:
        plan = self._plan
        pids = [] if self._target.pid is None else tree(self._target.pid)
        with Load(self._target.address, plan.silence_s) as load:
            adds, reads = self._streams(load)
            switched = context_switches(pids)
            report = None
            if plan.rate is None:
                seconds, spent = self._closed_loop(load, adds, pids)
            else:
                loop = OpenLoop(load, plan.rate, adds, reads, plan.warmup_s, plan.seconds)
                loop.warm_up()
                before = _CpuTime.so_far(pids)
                seconds, report = loop.measure()
                spent = _CpuTime.so_far(pids).since(before)
            of_adds = measured(adds, seconds) if adds else None
            of_reads = measured(reads, seconds) if reads else None
            if plan.rate is None:
                load.finish()
            switched = context_switches(pids) - switched
            sent = max(sum(stream.next for stream in load.streams), 1)
        millions = max(sum(part.requests for part in (of_adds, of_reads) if part), 1) / 1e6
        cost = None
        if self._before is not None:
            after = self._usage()
            assert after is not None
            added = sum(stream.next for stream in adds) * (HEADER_BYTES + plan.shape.size)
            written = self._written(added if plan.load == "adds" else 0)
            switches = switched / sent
            used = spent.bookie_s / millions
            cost = Cost(used, switches, after.rss_bytes, after.pss_bytes, *written)
        own = spent.load_s / millions
        return Result(plan, of_adds, of_reads, cost, own, spent.stolen_s, rate=report)

    def _closed_loop(
        self, load: Load, adds: list[Stream], pids: list[int]
    ) -> tuple[float, _CpuTime]:
        """The duration in seconds, and the CPU seconds spent meanwhile."""
        plan = self._plan
        load.run(0 if plan.load == "catchup" else plan.warmup_s)
        if plan.load == "adds" and plan.entries is not None:
            for stream in adds:
                stream.end = stream.next + plan.entries // len(adds)
        # From here to the end of run() the event loop must not be held up: requests are in flight.
        before = _CpuTime.so_far(pids)
        load.count()
        seconds = load.run(None if plan.load == "adds" and plan.entries else plan.seconds)
        return seconds, _CpuTime.so_far(pids).since(before)

    def _streams(self, load: Load) -> tuple[list[Stream], list[Stream]]:
        """The connections that add, and those that read."""
        plan = self._plan
        adds: list[Stream] = []
        reads: list[Stream] = []
        if plan.load != "adds" or (plan.rate is not None and plan.rate.reads > 0):
            entries = self._write_ahead()
            reads = load.add(READ, plan.shape, self._ledger, entries)
        if plan.load == "catchup":
            for stream in reads:
                stream.end = stream.total
        if plan.load in ("adds", "mixed") and (plan.rate is None or plan.rate.reads < 1):
            adds = load.add(ADD, plan.shape, self._ledger + plan.shape.ledgers)
        return adds, reads

    def _write_ahead(self) -> int:
        """Writes the entries to be read; returns their number in each ledger."""
        plan, folder = self._plan, self._target.folder
        entries = (plan.entries or 0) // plan.shape.ledgers
        if entries < 1:
            raise BenchError(f"there have to be entries to read: {plan.shape.ledgers} at least")
        write_ledgers(self._target.address, plan.shape, self._ledger, entries, plan.silence_s)
        if plan.load in ("catchup", "mixed"):
            if folder is None:
                raise BenchError("a cold cache needs the bookie's data folder: give --data")
            time.sleep(plan.settle_s)
            self._wait_idle()
            drop_cache(folder)
        return entries

    def _written(self, added: int) -> tuple[float | None, float | None]:
        """Bytes that the processes and the device wrote per byte added, once it is on the disk."""
        if self._before is None or added == 0 or self._plan.settle_s == 0:
            return None, None
        time.sleep(self._plan.settle_s)
        self._wait_idle()
        device, after = self._device_written(), self._usage()
        assert after is not None
        of_processes = (after.written_bytes - self._before.written_bytes) / added
        if device is None or self._device_before is None:
            return of_processes, None
        return of_processes, (device - self._device_before) / added

    def _wait_idle(self) -> None:
        """Waits until the bookie does next to nothing in the background."""
        deadline = time.monotonic() + _IDLE_WAIT_S
        while (before := self._usage()) is not None and time.monotonic() < deadline:
            time.sleep(_IDLE_POLL_S)
            after = self._usage()
            assert after is not None
            if after.cpu_s - before.cpu_s <= _IDLE_CPU * _IDLE_POLL_S:
                return

    def _usage(self) -> Usage | None:
        return None if self._target.pid is None else usage_of(self._target.pid)

    def _device_written(self) -> int | None:
        if self._target.folder is None or self._plan.settle_s == 0:
            return None
        os.sync()
        return device_written_bytes(self._target.folder)
