"""The network between processes: messages that are late, lost, duplicated, reordered or cut off.

A message is a call on the receiving process. Names are those of hosts, so that a partition cuts off all
processes of a host, in one direction or both. Connections are managed by their ends (link.py), except for their two
directions (``Route``), within which messages may have to keep their order. A loss is silent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from proof.sim.world.loop import Process, Scheduler


class Route:
    """One direction of a connection. ``last``: when its last message arrives."""

    __slots__ = ("hosts", "last")

    def __init__(self, source: str, target: str) -> None:
        self.hosts = source, target
        self.last = 0.0


class Network:
    """``loss``, ``double``: probabilities; ``delay_s``: the minimum, and the mean of the additional delay.

    ``in_order``: messages of one direction of a connection never overtake each other.
    """

    def __init__(self, scheduler: Scheduler, counts: Counter[str]) -> None:
        self._scheduler = scheduler
        self._random = scheduler.rng.random
        self._expo = scheduler.rng.expovariate
        self._process = Process(scheduler, "network")
        self._counts = counts
        self.loss = 0.0
        self.double = 0.0
        self.delay_s = (0.0002, 0.001)
        self.in_order = True
        self.cut: set[tuple[str, str]] = set()
        self.slow: dict[tuple[str, str], float] = {}
        """Addition to the mean delay from one host to another."""
        self.leaky: dict[tuple[str, str], float] = {}
        """Probability of a loss from one host to another, instead of ``loss``."""
        self.next_lost: set[tuple[str, str]] = set()
        """Pairs of hosts, from and to, between which the next message is lost."""
        self.garbling: dict[str, float] = {}
        """Probability that a host sends an entry with a wrong bit."""

    def send(self, route: Route, process: Process, call: Callable[..., object], *args: Any) -> None:
        hosts = route.hosts
        if hosts in self.cut:
            self._counts["messages cut off"] += 1
            return
        if hosts in self.next_lost:
            self.next_lost.discard(hosts)
            self._counts["messages lost"] += 1
            return
        loss = self.leaky.get(hosts, self.loss) if self.leaky else self.loss
        if loss and self._random() < loss:
            self._counts["messages lost"] += 1
            return
        self._deliver(route, process, call, args)
        if self.double and self._random() < self.double:
            self._counts["messages doubled"] += 1
            self._deliver(route, process, call, args)

    def _deliver(
        self, route: Route, process: Process, call: Callable[..., object], args: Any
    ) -> None:
        least, mean = self.delay_s
        if self.slow:
            mean += self.slow.get(route.hosts, 0.0)
        when = self._scheduler.now + least + self._expo(1.0) * mean
        if self.in_order:
            when = route.last = max(when, route.last)
        self._scheduler.at(when, process, call, args)

    def cut_for(self, seconds: float, routes: set[tuple[str, str]]) -> None:
        """Cuts these directions, pairs of from and to, for a while."""
        self.cut |= routes
        self._process.after(seconds, self.cut.difference_update, routes)

    def lose_for(self, seconds: float, route: tuple[str, str], probability: float) -> None:
        """One direction loses messages with this probability, for a while."""
        self.leaky[route] = probability
        self._process.after(seconds, self.leaky.pop, route, None)

    def lose_next(self, route: tuple[str, str]) -> None:
        """The next message in this direction is lost."""
        self.next_lost.add(route)

    def slow_for(self, seconds: float, route: tuple[str, str], mean_s: float) -> None:
        """Messages in this direction are delayed, for a while."""
        self.slow[route] = mean_s
        self._process.after(seconds, self.slow.pop, route, None)

    def garbles(self, host: str) -> bool:
        """True if the entry that a host is about to send gets a wrong bit."""
        probability = self.garbling.get(host, 0.0) if self.garbling else 0.0
        return probability > 0.0 and self._random() < probability

    def is_cut(self, one: str, other: str) -> bool:
        """True if messages are lost in either direction."""
        return (one, other) in self.cut or (other, one) in self.cut

    def heal(self) -> None:
        self.cut.clear()
        self.slow.clear()
        self.leaky.clear()
        self.next_lost.clear()
        self.garbling.clear()
        self.loss = self.double = 0.0
