"""Checks a history: with the checks of simulator and model (proof/checks), and a few that only a run of real processes
needs.

=================================  =========================================================================
of this module                     property
=================================  =========================================================================
entries in order                   the entries of one read have no holes and do not go back
enough copies                      at the end each entry of a closed ledger is on an ack quorum of its bookies
a bookie without its disk refuses  it must not start as one that never had anything
no process ends by itself          bookies end when they are stopped or killed
an ordered stop is clean           exit status 0; 1 if a worker had just been killed, whose disk has to stay dirty
all comes back                     once faults stopped all bookies are up and no ledger is in limbo
no defects                         no client met an error that reports a defect of bkbox
=================================  =========================================================================

A truncated history is checked as far as it goes; ``Verdict.complete`` says so.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bkbox.errors import CallerError
from proof.chaos.history import Line
from proof.checks.all import all_checks
from proof.checks.check import CLOSED, Metadata

_NEAR_S = 10.0
_REVIVED_S = 20.0
"""Seconds within which a killed worker has to serve again."""

_NEAR_MAX = 8
_VIOLATIONS_MAX = 100


@dataclass(frozen=True, slots=True)
class Violation:
    """A violation. ``at``: seconds since the run began; ``near``: the faults about then."""

    name: str
    words: str
    at: float
    near: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name}: {self.words} (at {self.at:.2f} s)"


@dataclass(slots=True)
class Verdict:
    """The result of checking a history."""

    seed: int = 0
    violations: list[Violation] = field(default_factory=list)
    complete: bool = False
    """True if the run came to its end."""

    seconds: float = 0.0
    done: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(operation, outcome)."""

    faults: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    back_s: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """By kind of fault: seconds, after the fault was over, until its target served again."""

    entries_read: int = 0
    restarts: int = 0
    limbo_cleared: int = 0


def check_history(lines: Iterable[Line]) -> Verdict:
    """Checks a history, its lines in the order of time. Raises CallerError for a file that is no history."""
    checker = _Checker()
    for line in lines:
        try:
            checker.check(line)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise CallerError(f"not a line of a history: {line}: {error!r}") from error
    return checker.verdict


class _Checker:
    def __init__(self) -> None:
        self.verdict = Verdict()
        self._checks = all_checks()
        self._began: dict[int, Line] = {}
        self._next_of: dict[int, int] = {}
        self._faults: list[tuple[float, float | None, str]] = []
        self._fault_of: dict[int, int] = {}
        self._spans: dict[int, tuple[float, float]] = {}
        self._metadata: dict[int, Metadata] = {}
        self._stored: dict[tuple[str, int], list[tuple[int, int]]] = {}
        self._last_status: dict[str, tuple[int, int, int]] = {}
        self._reported: set[tuple[str, str]] = set()
        self._now = 0.0

    def check(self, line: Line) -> None:
        self._now = line["t"]
        self.verdict.seconds = max(self.verdict.seconds, self._now)
        match line["kind"]:
            case "run":
                self.verdict.seed = line["seed"]
            case "begin":
                self._begin(line)
            case "end":
                self._end(line)
            case "found":
                self._found(line)
            case "metadata":
                self._changed(line)
            case "holds":
                ranges = [(first, last) for first, last in line["ranges"]]
                self._stored[line["bookie"], line["ledger"]] = ranges
            case "look":
                self._check_status(line)
            case "ended":
                self._violated("no process ends by itself", f"{line['bookie']}: {line['what']}")
            case "skipped":
                self.verdict.skipped[line["fault"]] += 1
            case "finished":
                self._finished(line)
            case kind:
                raise ValueError(f"kind {kind}")

    # ---- operations -----------------------------------------------------------------------------

    def _begin(self, line: Line) -> None:
        self._began[line["id"]] = line
        match line["op"]:
            case "add":
                self._mark(line["ledger"])
                self._tell("appended", line["ledger"], line["entry"], bytes.fromhex(line["digest"]))
            case "fault":
                words = " ".join(filter(None, (line["fault"], line.get("bookie", ""))))
                self.verdict.faults[line["fault"]] += 1
                self._fault_of[line["id"]] = len(self._faults)
                self._faults.append((self._now, None, words))

    def _end(self, line: Line) -> None:
        began = self._began.pop(line["id"], None)
        if began is None or began["op"] != line["op"]:
            raise ValueError("it ends what did not begin")
        op, outcome = line["op"], line["outcome"]
        self.verdict.done[op, outcome] += 1
        if op == "fault":
            position = self._fault_of.pop(line["id"])
            since, _, words = self._faults[position]
            self._faults[position] = since, self._now, words
            if "back_s" in line:
                self.verdict.back_s[line["fault"]].append(line["back_s"])
        elif op == "boot" and line.get("lacks_disk") and outcome == "ok":
            self._violated("a bookie without its disk refuses", f"{line['bookie']} has started")
        elif op == "stop" and outcome != "ok" and not self._left_dirty(began, line):
            words = f"{line['bookie']} ended with {line['status']}"
            self._violated("an ordered stop is clean", words)
        elif outcome == "ok":
            self._succeeded(op, began, line)
        elif "absent" in line:
            self._tell("absent", began["by"], line["ledger"], line["absent"])
        if str(line.get("error", "")).startswith("BugError"):
            self._violated("no defects", line["error"])

    def _left_dirty(self, began: Line, line: Line) -> bool:
        """True if the bookie was stopped while a killed worker had not opened its disk again."""
        since, words = began["t"] - _REVIVED_S, f"kill-worker {line['bookie']}"
        killed = any(what == words and at > since for at, _, what in self._faults)
        return line["status"] == 1 and killed

    def _succeeded(self, op: str, began: Line, line: Line) -> None:
        match op:
            case "boot":
                self.verdict.back_s["boot"].append(line["seconds"])
            case "create":
                self._tell("created", line["ledger"], False)
            case "add":
                ledger, entry = line["ledger"], line["entry"]
                if (ledger, entry) != (began["ledger"], began["entry"]):
                    raise ValueError("another entry was asked for")
                self._mark(ledger)
                self._tell("acknowledged", ledger, entry)
                self._tell("confirmed", ledger, entry)
            case "close" | "recover":
                self._tell("ended", line["by"], line["ledger"], line["last"])
            case "lac":
                self._tell("heard_lac", line["by"], line["ledger"], line["lac"])

    def _found(self, line: Line) -> None:
        began = self._began[line["id"]]
        expected = self._next_of.get(line["id"], began.get("first", 0))
        ledger, first, digests = line["ledger"], line["first"], line["digests"]
        if first != expected:
            words = f"{line['by']} got entry {first} of ledger {ledger} instead of {expected}"
            self._violated("entries in order", words)
        self._next_of[line["id"]] = first + len(digests)
        self.verdict.entries_read += len(digests)
        for entry, text in enumerate(digests, first):
            self._tell("found", line["by"], ledger, entry, bytes.fromhex(text))

    # ---- metadata and bookies -------------------------------------------------------------------

    def _changed(self, line: Line) -> None:
        ledger = line["ledger"]
        if line["version"] is None:
            self._metadata.pop(ledger, None)
            self._tell("deleted", ledger)
            return
        e, wq, aq = line["sizes"]
        fragments = tuple((first, tuple(members)) for first, members in line["fragments"])
        now = Metadata(ledger, line["state"], line["version"], line["last"], (e, wq, aq), fragments)
        self._metadata[ledger] = now
        self._tell("stored_metadata", now)

    def _check_status(self, line: Line) -> None:
        pid, restarts, done = self._last_status.get(line["bookie"], (0, 0, 0))
        if pid != line["pid"]:
            restarts = done = 0
        self.verdict.restarts += max(0, line["restarts"] - restarts)
        # Each repair worker counts from the beginning.
        self.verdict.limbo_cleared += line["done"] - done if line["done"] >= done else line["done"]
        self._last_status[line["bookie"]] = line["pid"], line["restarts"], line["done"]

    # ---- the end --------------------------------------------------------------------------------

    def _finished(self, line: Line) -> None:
        self.verdict.complete = True
        if line["down"]:
            self._violated("all comes back", f"{', '.join(line['down'])} did not come up again")
        elif not line["well"]:
            words = f"not all is well after the last fault: {line['limbo']} ledgers are in limbo"
            self._violated("all comes back", words)
        for bookie, words in line["deaths"]:
            self._violated("no process ends by itself", f"{bookie}: {words}")
        self._tell("finished")
        for _, metadata in sorted(self._metadata.items()):
            if metadata.state == CLOSED:
                self._count_copies(metadata)

    def _count_copies(self, metadata: Metadata) -> None:
        ledger, ack_quorum = metadata.ledger, metadata.sizes[2]
        members = {bookie for _, ensemble in metadata.fragments for bookie in ensemble}
        stored = {bookie: _entries(self._stored.get((bookie, ledger), [])) for bookie in members}
        short = [
            entry
            for entry in range(metadata.last + 1)
            if sum(entry in stored[bookie] for bookie in metadata.replicas(entry)) < ack_quorum
        ]
        if short:
            words = f"entries {short[:5]} of ledger {ledger} are on fewer than {ack_quorum} bookies"
            self._violated("enough copies", words)

    # ---- violations -----------------------------------------------------------------------------

    def _mark(self, ledger: int) -> None:
        first, _ = self._spans.get(ledger, (self._now, 0.0))
        self._spans[ledger] = first, self._now

    def _tell(self, observation: str, *values: Any) -> None:
        for check in self._checks:
            words = getattr(check, observation)(*values)
            if words is not None:
                self._violated(check.name, words)

    def _violated(self, name: str, words: str) -> None:
        is_new = (name, words) not in self._reported
        self._reported.add((name, words))
        if is_new and len(self.verdict.violations) < _VIOLATIONS_MAX:
            near = self._near(words)
            self.verdict.violations.append(Violation(name, words, self._now, near))

    def _near(self, words: str) -> tuple[str, ...]:
        """Faults about now, or while the ledger that the text names was written."""
        ledger = re.search(r"\bledger (\d+)", words)
        spans = [(self._now - _NEAR_S, self._now)]
        if ledger is not None and int(ledger[1]) in self._spans:
            first, last = self._spans[int(ledger[1])]
            spans.append((first - _NEAR_S / 2, last + _NEAR_S / 2))
        return tuple(
            f"{words} ({since:.1f} to {'the end' if until is None else f'{until:.1f}'} s)"
            for since, until, words in self._faults
            if any(since <= end and (until is None or until >= begin) for begin, end in spans)
        )[-_NEAR_MAX:]


def _entries(ranges: Sequence[tuple[int, int]]) -> set[int]:
    return {entry for first, last in ranges for entry in range(first, last + 1)}
