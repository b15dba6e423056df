"""Rounds: each load on each of its subjects, in turn, in the order of the round.

The order is reversed every other round, so that nobody always comes after the same neighbour.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from bkbox.bench.bookie import Plan, Result, run
from bkbox.bench.client_plan import Through
from bkbox.bench.load import Shape, first_ledger
from bkbox.bench.memory import PageCache
from bkbox.bench.open_loop import Rate
from bkbox.errors import BenchError
from tests.bench import foreign
from tests.bench.peers.clusters import Cluster, best, run_bkbox, run_java
from tests.bench.peers.java import ZooKeeper
from tests.bench.peers.scenarios import (
    BY_FOREIGN,
    LINES,
    LOADS,
    MAXIMUM_OF,
    RATE_READS,
    AnyLoad,
    ClientLoad,
    ForeignLoad,
    Line,
    RateLoad,
    Start,
    maximum_plan,
)
from tests.bench.peers.systems import Bkbox, Java, Sink, System, folder_bytes
from tests.bench.quiet import QuietMachine

Figures = dict[str, float]

_FREE_SHARE = 0.05
"""From this free share of a disk on downwards both sides' bookies are read-only."""
_LOAD_BYTES_MAX = 16 << 30
"""What a single load writes at most: the program that only appends."""
_MEASURED = ("per_s", "p50_us", "p99_us", "p999_us", "p9999_us", "max_us")
_SINKS = ("limit", "synced limit", "sink")
_THROUGH: dict[str, Through] = {
    "bkbox on bkbox": "ledger",
    "bkbox's log on bkbox": "log",
    "bkbox's sync client on bkbox": "sync",
}
_CLUSTER_OF = {
    "bkbox on bkbox": "bkbox",
    "bkbox's log on bkbox": "bkbox",
    "bkbox's sync client on bkbox": "bkbox",
    "java on bkbox": "bkbox-zookeeper",
    "java on java": "java",
}


class Runner:
    """Everything that takes part. A context manager: nothing is left at its end. Each load of a round is measured on a
    machine that is quiet."""

    def __init__(self, root: Path, rng: random.Random, quiet: QuietMachine, *, quick: bool) -> None:
        self._root = root
        self._rng = rng
        self._quiet = quiet
        self._quick = quick
        self._foreign: Path | None = None
        self._maxima: dict[tuple[int, Shape], float] = {}
        self._exit = contextlib.ExitStack()
        self._page_cache = self._exit.enter_context(PageCache(root))
        self._zookeeper: ZooKeeper | None = None
        self._systems: dict[str, System] = {}
        self._clusters: dict[str, Cluster] = {}

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def round(self, lines: list[Line], number: int) -> dict[str, dict[str, Figures]]:
        """The figures of each load, on each subject."""
        found: dict[str, dict[str, Figures]] = {}
        for load in LOADS:
            subjects = [
                subject
                for line in lines
                if line.load == load.name
                for subject in (line.ours, line.theirs)
            ]
            subjects = list(dict.fromkeys(subjects))
            if number % 2:
                subjects.reverse()
            if subjects:
                found[load.name] = self._quiet.measure(
                    f"round {number + 1}, {load.name}",
                    partial(self._on_all, load, subjects, number),
                )
        return found

    def _on_all(self, load: AnyLoad, subjects: list[str], number: int) -> dict[str, Figures]:
        """The figures of one load in one round, by subject."""
        found = {}
        for subject in subjects:
            start = time.monotonic()
            found[subject] = self._measure(load, subject, number)
            self._make_room()
            _say(number, load, subject, found[subject], time.monotonic() - start)
        return found

    def _measure(self, load: AnyLoad, subject: str, number: int) -> Figures:
        if isinstance(load, ClientLoad):
            return self._measure_client(load, subject)
        if isinstance(load, Start):
            return self._measure_start(load, subject)
        plan = load.plan
        if isinstance(load, RateLoad):
            plan = replace(plan, rate=Rate(self._rate(load, number), RATE_READS))
        if isinstance(load, ForeignLoad) and subject.endswith(BY_FOREIGN):
            return self._measure_foreign(load, subject.removesuffix(BY_FOREIGN))
        return self._measure_plan(plan, subject)

    def _measure_plan(self, plan: Plan, subject: str) -> Figures:
        system = self._system(subject, plan.shape.size)
        target = system.ready()
        if plan.load == "adds":
            time.sleep(plan.settle_s)  # what it still holds would be charged to this load
        self._page_cache.fill()
        if self._quick:
            plan = replace(plan, seconds=1.0)
        try:
            return _figures(run(target, plan, self._rng))
        finally:
            system.sleep()

    def _measure_foreign(self, load: ForeignLoad, subject: str) -> Figures:
        """By foreign.c, which is compiled for the first of these."""
        if self._foreign is None:
            self._foreign = foreign.compiled(self._root)
        plan = load.plan
        system = self._system(subject, plan.shape.size)
        target = system.ready()
        self._page_cache.fill()
        try:
            found = foreign.run(
                self._foreign,
                target.address,
                plan.shape,
                first_ledger(self._rng),
                seconds=1.0 if self._quick else plan.seconds,
                warmup_s=plan.warmup_s,
            )
        finally:
            system.sleep()
        return {
            **{f"adds {key}": found[key] for key in _MEASURED},
            "load_cpu_s_per_million": found["load_cpu_s_per_million"],
        }

    def _rate(self, load: RateLoad, number: int) -> int:
        """The rate of an open loop in a round."""
        if load.per_s is not None:
            return load.per_s
        assert load.share is not None
        key = (number, load.plan.shape)
        if key not in self._maxima:
            figures = self._measure_plan(maximum_plan(load), MAXIMUM_OF)
            self._maxima[key] = figures["adds per_s"]
        return max(round(self._maxima[key] * load.share), 1)

    def _measure_client(self, load: ClientLoad, subject: str) -> Figures:
        name = _CLUSTER_OF[subject]
        if name not in self._clusters:
            cluster = Cluster(name, self._root, self._rng, self._zookeeper_up())
            self._exit.callback(cluster.stop)
            self._clusters[name] = cluster
        cluster = self._clusters[name]
        cluster.ready()
        self._page_cache.fill()
        try:
            if name == "bkbox":
                return run_bkbox(cluster.uri, replace(load.plan, through=_THROUGH[subject]))
            return best(
                run_java(cluster.uri, load.plan, "v2", batch=True),
                *(
                    ()
                    if self._quick
                    else (
                        run_java(cluster.uri, load.plan, "v2", batch=False),
                        run_java(cluster.uri, load.plan, "v3", batch=False),
                    )
                ),
            )
        finally:
            cluster.sleep()

    def _measure_start(self, load: Start, subject: str) -> Figures:
        """With what is on the disk not in the page cache's way: it was written a moment ago."""
        system = self._make(subject, f"{subject}-start", 0)
        system.forget()
        self._page_cache.fill()
        try:
            system.start()
            if load.entries:
                plan = Plan("adds", Shape(16, 4, 256, 1024), 0, 0, load.entries, 0, 60)
                run(system.target, plan, self._rng)
            system.stop()
            return {"start_s": system.start()}
        finally:
            system.forget()

    def _system(self, subject: str, size: int) -> System:
        """``size``: payload, in bytes, of the load's entries. A sink has one for each, since it stores nothing."""
        name = f"{subject}, {size} bytes" if subject in _SINKS else subject
        if name not in self._systems:
            self._systems[name] = self._make(subject, name, size)
            self._exit.callback(self._systems[name].forget)
        return self._systems[name]

    def _make(self, subject: str, name: str, size: int) -> System:
        root, rng = self._root, self._rng
        if subject in ("write", "sync", "journal"):
            return Bkbox(name, root, rng, subject)
        if subject == "interpreted":
            return Bkbox(name, root, rng, "sync", {"BKBOX_KERNEL": "interpreted"})
        if subject in _SINKS:
            syncs = subject == "synced limit"
            return Sink(name, root, rng, size, appends=subject != "sink", syncs=syncs)
        journal = subject == "java-journal"
        return Java(name, root, rng, self._zookeeper_up(), journal=journal)

    def _make_room(self) -> None:
        """Remove the largest of what is asleep until the next load has room: on a full disk a bookie refuses."""
        members = [system for cluster in self._clusters.values() for system in cluster.systems]
        asleep = [*self._systems.values(), *members]
        while asleep:
            total, _, free = shutil.disk_usage(self._root)
            if free >= total * _FREE_SHARE + _LOAD_BYTES_MAX:
                break
            largest = max(asleep, key=lambda system: folder_bytes(system.root))
            asleep.remove(largest)
            largest.forget()

    def _zookeeper_up(self) -> ZooKeeper:
        if self._zookeeper is None:
            self._zookeeper = ZooKeeper(self._root / "zookeeper")
            self._exit.callback(self._zookeeper.kill)
            self._zookeeper.start()
        return self._zookeeper


def rounds(
    root: Path, lines: list[Line], numbers: range, quiet: QuietMachine, *, quick: bool
) -> Iterator[dict[str, dict[str, Figures]]]:
    """The figures of each round, by its number, which says its order. Raises DisturbedError if the machine does not
    become quiet."""
    with Runner(root, random.Random(), quiet, quick=quick) as runner:
        for number in numbers:
            yield runner.round(lines, number)


def chosen(only: list[str], *, whole_loads: bool) -> list[Line]:
    """The lines whose name or text contains one of these; all if there are none. ``whole_loads``: with
    them all other lines of the same loads."""
    lines = [
        line
        for line in LINES
        if not only or any(part in line.name or part in line.text for part in only)
    ]
    loads = {line.load for line in lines}
    return [line for line in LINES if line in lines or (whole_loads and line.load in loads)]


def _figures(result: Result) -> Figures:
    figures = {
        "load_cpu_s_per_million": result.load_cpu_s_per_million,
        "stolen_s": result.stolen_s,
    }
    if result.errors and result.rate is None:
        raise BenchError(f"answers with a wrong code: {result.errors}")
    for name, part in (("adds", result.adds), ("reads", result.reads)):
        if part is not None:
            for key in _MEASURED:
                figures[f"{name} {key}"] = getattr(part, key)
    if result.rate is not None:
        figures.update({f"rate {key}": float(value) for key, value in asdict(result.rate).items()})
    if result.cost is not None:
        figures.update({key: value for key, value in asdict(result.cost).items() if value})
    return figures


def _say(number: int, load: AnyLoad, subject: str, figures: Figures, seconds: float) -> None:
    main = ", ".join(
        f"{key} {value:,.2f}"
        for key, value in figures.items()
        if "p50" not in key and "max" not in key
    )
    print(f"round {number + 1}, {load.name}, {subject} ({seconds:.0f} s): {main}", file=sys.stderr)
