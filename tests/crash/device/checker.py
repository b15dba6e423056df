"""Loads a bookie, remembers what it acknowledged, and counts the promises that it breaks.

Shares no code with bkbox: the wire is that of tests/harness/raw.py, the judge that of
tests/crash/load.py, and metadata are looked at with SQLite alone.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field, fields
from pathlib import Path

from tests.crash.load import (
    ADD,
    READ,
    Denied,
    FenceLost,
    Ledger,
    Load,
    Pending,
    Violation,
    WrongBytes,
)
from tests.harness import raw

WORDS_KEPT = 50
"""Violations of one device that are told; all are counted."""


@dataclass
class Tally:
    """What power cuts did. All but ``cuts``, ``acknowledged``, ``lost_sectors``, ``unknown`` and
    ``seconds`` are violations.

    ``lost_sectors``: that the device had acknowledged and not flushed. ``unknown``:
    acknowledged entries that were answered so, as they are where one may be lost.
    """

    cuts: int = 0
    acknowledged: int = 0
    lost_sectors: int = 0
    unknown: int = 0
    denied: int = 0
    fences_lost: int = 0
    wrong_bytes: int = 0
    metadata_lost: int = 0
    other: int = 0
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)

    def count(self, violation: AssertionError) -> None:
        """Count what was found by its kind, and keep its words."""
        kinds = {Denied: "denied", FenceLost: "fences_lost", WrongBytes: "wrong_bytes"}
        kind = kinds.get(type(violation), "other")
        setattr(self, kind, getattr(self, kind) + 1)
        self.note(f"{kind}: {violation}")

    def note(self, words: str) -> None:
        """Keep words on a violation, unless there are many."""
        if len(self.violations) < WORDS_KEPT:
            self.violations.append(words)

    @property
    def broken(self) -> int:
        """Number of violations."""
        known = self.denied + self.fences_lost + self.wrong_bytes
        return known + self.metadata_lost + self.other

    def add(self, other: Tally) -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


class CheckedLoad(Load):
    """A load on ledgers that are in the metadata store: those of ``provide``, which come first.

    ``tally`` counts what is wrong; nothing is raised for it.
    """

    def __init__(self, port: int, seed: int, tally: Tally, ledgers: Iterable[int]) -> None:
        self._tally = tally
        self._provided = deque(ledgers)
        self._unknown: set[tuple[int, int]] = set()
        super().__init__(port, seed)

    def provide(self, ledgers: Iterable[int]) -> None:
        """In the place of those that were provided before and not used."""
        self._provided = deque(ledgers)

    def _new_ledger(self) -> Ledger:
        ledger = Ledger(self._provided.popleft())
        self.ledgers[ledger.id] = ledger
        return ledger

    def judge(self, opcode: int, pending: Pending, code: int, data: bytes) -> None:
        before = self.acks
        if opcode == ADD and code == raw.EREADONLY:
            code = raw.EIO  # so it answers while its disks fail, and while it stops: a cut comes
        try:
            super().judge(opcode, pending, code, data)
        except Violation as violation:
            self._tally.count(violation)
        self._tally.acknowledged += self.acks - before

    def entries_may_be_lost(self) -> None:
        """An acknowledged entry may be unknown from now on, and its ledger be fenced."""
        for ledger in self.ledgers.values():
            ledger.locked = ledger.limbo = True

    def _ask_all(self, wanted: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
        unanswered = super()._ask_all(wanted)
        new = {item[1:] for item in unanswered if item[0] == READ and item[2] >= 0}
        self._tally.unknown += len(new - self._unknown)
        self._unknown |= new
        return unanswered


def ledgers_in_metadata(database: Path) -> set[int]:
    """The ids of the ledgers in the metadata store."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        return {ledger for (ledger,) in connection.execute("SELECT ledger_id FROM ledger")}
