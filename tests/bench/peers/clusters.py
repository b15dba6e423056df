"""Clients on clusters of three bookies: each side's own, and Java's client on bkbox's bookies.

A client is a process of its own that is started for each measurement and warms up first. Of the
protocols (and, for reads, of the ways to read) that a client has, the fastest counts.
"""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

from bkbox.bench.client_plan import ClientPlan
from bkbox.errors import BenchError
from tests.bench.peers.java import ZooKeeper, command
from tests.bench.peers.systems import Bkbox, Java, System
from tests.harness.processes import bkbox

BOOKIES = 3
JAVA_WARMUP_S = 6
_TIMEOUT_S = 180.0


class Cluster:
    """Three bookies with metadata of their own; ``uri`` is where clients find them."""

    def __init__(self, name: str, root: Path, rng: random.Random, zookeeper: ZooKeeper) -> None:
        self.name = name
        self._root = root
        self._rng = rng
        self._zookeeper = zookeeper
        self.uri = ""
        self.systems: list[System] = []

    def ready(self) -> None:
        """All of them awake, with room on their disks."""
        if not self.systems:
            self._make()
        for system in self.systems:
            system.ready()

    def sleep(self) -> None:
        for system in self.systems:
            system.sleep()

    def stop(self) -> None:
        for system in self.systems:
            system.forget()

    def _make(self) -> None:
        root = self._root / f"cluster-{self.name}"
        root.mkdir()
        if self.name == "bkbox":
            self.uri = f"sqlite:{root / 'metadata.db'}"
        else:
            self.uri = self._zookeeper.new_cluster()
        for number in range(BOOKIES):
            name = f"{self.name}-{number}"
            if self.name == "java":
                system: System = Java(
                    name,
                    root,
                    self._rng,
                    self._zookeeper,
                    journal=True,
                    heap_mb=512,
                    direct_mb=512,
                    cluster=self.uri,
                )
            else:
                system = Bkbox(name, root, self._rng, "sync", metadata=self.uri)
            self.systems.append(system)


def run_bkbox(uri: str, plan: ClientPlan) -> dict[str, Any]:
    """bkbox's client."""
    arguments = [
        "bench",
        "client",
        "--output",
        "json",
        "--metadata",
        uri,
        "--protocol",
        plan.protocol,
    ]
    arguments += ["-e", str(plan.ensemble), "-w", str(plan.write_quorum)]
    arguments += ["-a", str(plan.ack_quorum), "--window", str(plan.window)]
    arguments += ["--size", str(plan.size), "--seconds", str(plan.seconds)]
    arguments += ["--warmup", str(plan.warmup_s), "--through", plan.through]
    return _figures(bkbox(*arguments, timeout=_TIMEOUT_S).stdout)


def run_java(uri: str, plan: ClientPlan, protocol: str, *, batch: bool) -> dict[str, Any]:
    """Apache's client; ``batch``: it reads with batch reads."""
    arguments = {
        "uri": uri,
        "protocol": protocol,
        "batch": str(batch).lower(),
        "e": plan.ensemble,
        "wq": plan.write_quorum,
        "aq": plan.ack_quorum,
        "size": plan.size,
        "window": plan.window,
        "warmup": JAVA_WARMUP_S,
        "seconds": round(plan.seconds),
    }
    done = subprocess.run(
        command(
            "bkbox.interop.Bench",
            *(f"{name}={value}" for name, value in arguments.items()),
            heap_mb=512,
            direct_mb=512,
        ),
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise BenchError(f"the Java client failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return _figures(done.stdout)


def best(*runs: dict[str, Any]) -> dict[str, Any]:
    """The faster appends, and the faster reads."""
    found = dict(max(runs, key=lambda figures: figures["adds per_s"]))
    reads = max(runs, key=lambda figures: figures["reads per_s"])
    return {**found, **{key: reads[key] for key in reads if key.startswith("reads")}}


def _figures(text: str) -> dict[str, Any]:
    found = json.loads(text.strip().splitlines()[-1] if text.startswith('{"') else text)
    figures = {}
    for ours, theirs in (("adds", "appends"), ("reads", "reads")):
        for key in ("per_s", "p50_us", "p99_us", "p999_us", "max_us"):
            if found[theirs][key] is not None:  # reads have no latencies: they are asked for ahead
                figures[f"{ours} {key}"] = found[theirs][key]
    figures["adds client_cpu_us"] = found["client_cpu_s_per_million"]
    figures["reads client_cpu_us"] = found["read_cpu_s_per_million"]
    return figures
