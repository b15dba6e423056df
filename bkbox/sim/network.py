"""The network between processes: messages that are late, lost, doubled, out of order or cut off.

A message is a call on the process at the other end. Names are those of hosts, so that a partition cuts off all
processes of a host, in one direction or both. Connections are the ends' own business (link.py): what is lost here is
lost without a word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from bkbox.sim.loop import Process, Scheduler


class Network:
    """``loss``, ``double``: probabilities; ``delay_s``: the least, and the mean of what comes on top of it.

    ``in_order``: messages from one host to another never overtake each other.
    """

    def __init__(self, scheduler: Scheduler, counts: Counter[str]) -> None:
        self._scheduler = scheduler
        self._random = scheduler.rng.random
        self._expo = scheduler.rng.expovariate
        self._counts = counts
        self.loss = 0.0
        self.double = 0.0
        self.delay_s = (0.0002, 0.001)
        self.in_order = True
        self.cut: set[tuple[str, str]] = set()
        self.slow: dict[tuple[str, str], float] = {}
        """What is added to the mean of the delay from one host to another."""
        self._last: dict[tuple[str, str], float] = {}

    def send(
        self,
        source: str,
        target: str,
        process: Process,
        call: Callable[..., object],
        *args: Any,
    ) -> None:
        way = source, target
        if way in self.cut:
            self._counts["messages cut off"] += 1
            return
        if self.loss and self._random() < self.loss:
            self._counts["messages lost"] += 1
            return
        self._deliver(way, process, call, args)
        if self.double and self._random() < self.double:
            self._counts["messages doubled"] += 1
            self._deliver(way, process, call, args)

    def _deliver(
        self, way: tuple[str, str], process: Process, call: Callable[..., object], args: Any
    ) -> None:
        least, mean = self.delay_s
        if self.slow:
            mean += self.slow.get(way, 0.0)
        when = self._scheduler.now + least + self._expo(1.0) * mean
        if self.in_order:
            when = max(when, self._last.get(way, 0.0))
            self._last[way] = when
        self._scheduler.at(when, process, call, args)

    def is_cut(self, one: str, other: str) -> bool:
        """Whether messages are lost in either direction."""
        return (one, other) in self.cut or (other, one) in self.cut

    def heal(self) -> None:
        self.cut.clear()
        self.slow.clear()
        self.loss = self.double = 0.0
