"""The index of a simulated disk: outlives its process; a lost host keeps a prefix of its writes, at least what was
flushed, as the tables of LevelDB do.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from bkbox.storage.index.ordered_store import MemoryStore
from proof.sim.world.loop import Crash, Process


class SimIndex(MemoryStore):
    """The index of one disk, over all its processes; ``process``: the one that has it open."""

    def __init__(self) -> None:
        super().__init__()
        self.process: Process | None = None
        self._flushed: dict[bytes, bytes] = {}
        self._since: list[Mapping[bytes, bytes | None]] = []

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        if self.process is not None and self.process.dead:
            raise Crash
        super().write(changes)
        self._since.append(dict(changes))

    def flush(self) -> None:
        if self.process is not None and self.process.dead:
            raise Crash
        for changes in self._since:
            _apply(self._flushed, changes)
        self._since.clear()

    def copy(self) -> SimIndex:
        """A copy of its files: what was flushed."""
        made = SimIndex()
        made._flushed = dict(self._flushed)
        MemoryStore.write(made, made._flushed)
        return made

    def lose_host(self, rng: random.Random, *, bare: bool = False) -> SimIndex:
        """The index after the loss of its host; ``bare``: nothing unflushed survives."""
        left = SimIndex()
        flushed = dict(self._flushed)
        for changes in self._since[: 0 if bare else rng.randint(0, len(self._since))]:
            _apply(flushed, changes)
        left._flushed = flushed
        MemoryStore.write(left, flushed)
        return left


def _apply(values: dict[bytes, bytes], changes: Mapping[bytes, bytes | None]) -> None:
    for key, value in changes.items():
        if value is None:
            values.pop(key, None)
        else:
            values[key] = value
