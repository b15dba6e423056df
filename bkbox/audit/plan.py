"""A plan of repair: a table (CSV) that an operator can read, shorten and keep, made from the tables of an audit.

==========  =========================================================================================================
action      what is done with a row
==========  =========================================================================================================
copy        the entries are copied to the bookie again, from copies whose digest is right
overwrite   the entry is overwritten with the right copy; ``sha256`` says which that is, ``why`` gives the evidence
replace     the bookie is gone: all that it has of the ledger is copied to other bookies, which then replace it
move        as replace, though the bookie is registered; closed ledgers only. No audit plans it: an operator changes a
            ``copy`` or an ``overwrite`` to ``move`` where a bookie does not return what was overwritten (execute.py)
collect     no action by itself: the bookie's garbage collection has to remove a ledger that no metadata know
decide      no action by itself: copies differ and nothing says which is right. An operator that knows the right copy
            changes it to ``overwrite``
==========  =========================================================================================================

A plan is idempotent: a row that is done is recognised as done, so a plan may be executed again, after an interruption
or by mistake.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from bkbox.audit.judgement import Copy
from bkbox.audit.rows import Divergent
from bkbox.base.commandline import plain_command
from bkbox.base.ids import bookie_id, ledger_id
from bkbox.base.text import counted, quoted
from bkbox.errors import ConfigError, InvalidIdError, OperatorError


class Action(Enum):
    """Action of a row of the plan; see the module."""

    COPY = "copy"
    OVERWRITE = "overwrite"
    REPLACE = "replace"
    MOVE = "move"
    COLLECT = "collect"
    DECIDE = "decide"


_PROOFS = {
    "metadata": "agree with the length of the closed ledger",
    "length": "fit between the lengths of the entries around",
    "ack quorum": "agree, an ack quorum",
}

BY_PERSONS = (Action.COLLECT, Action.DECIDE)
"""Actions that no command executes."""


class Step(NamedTuple):
    """One row of the plan. ``entries``: how many of first to last the bookie has to hold. ``sha256``: of the right
    payload, followed by ``/`` and the right length if only that differs."""

    action: Action
    ledger_id: int
    bookie: str
    first_entry: int
    last_entry: int
    entries: int
    sha256: str
    why: str

    def means(self, copy: Copy) -> bool:
        """True if this is the right copy."""
        sha256, _, length = self.sha256.partition("/")
        return copy.sha256 == sha256 and length in ("", str(copy.length))


def plan_of(folder: Path) -> list[Step]:
    """The steps that the tables of an audit call for, by ledger. Raises OperatorError for a folder without them."""
    return sorted(_steps(folder), key=lambda step: (step.ledger_id, step.bookie, step.first_entry))


def _steps(folder: Path) -> Iterator[Step]:
    by_entry: dict[tuple[int, int], list[Divergent]] = {}
    for row in _rows(folder, "divergent"):
        by_entry.setdefault((row.ledger_id, row.entry_id), []).append(row)
    for (ledger, entry), copies in by_entry.items():
        right = next((each for each in copies if each.verdict == "right"), None)
        for each in copies:
            if each.verdict == "wrong" and right is not None:
                agree = f"{right.copies} of {counted(len(copies), 'copy')}"
                why = f"divergent: {agree} {_PROOFS[right.proof]}"
                sha256 = right.sha256
                if sha256 == each.sha256:
                    sha256 += f"/{right.length}"
                yield Step(Action.OVERWRITE, ledger, each.bookie, entry, entry, 1, sha256, why)
            elif each.verdict == "undecided":
                why = (
                    f"divergent: {each.copies} of {counted(len(copies), 'copy')} are like this one"
                )
                yield Step(Action.DECIDE, ledger, each.bookie, entry, entry, 1, each.sha256, why)
    # Copying an entry whose copies differ would give one side the majority: it is decided first.
    undecided: dict[int, set[int]] = {}
    for (ledger, entry), copies in by_entry.items():
        if any(each.verdict == "undecided" for each in copies):
            undecided.setdefault(ledger, set()).add(entry)
    for name in ("missing", "corrupt", "unreadable"):
        for row in _rows(folder, name):
            for first, last in _around(
                row.first_entry, row.last_entry, undecided.get(row.ledger_id)
            ):
                count = row.entries if (first, last) == (row[2], row[3]) else last - first + 1
                why = f"{name}: {row.why}"
                yield Step(Action.COPY, row.ledger_id, row.bookie, first, last, count, "", why)
    for row in _rows(folder, "under_replicated"):
        for bookie in row.gone:
            yield Step(Action.REPLACE, row.ledger_id, bookie, 0, -1, 0, "", "the bookie is gone")
    for row in _rows(folder, "orphaned"):
        collection = plain_command("gc", "run")
        why = f"no metadata know it: `{collection}` on that bookie's host, or Java's garbage collection"
        yield Step(Action.COLLECT, row.ledger_id, row.bookie, 0, row.last_entry, 0, "", why)


def _around(first: int, last: int, without: set[int] | None) -> Iterator[tuple[int, int]]:
    """The sub-ranges of first to last that remain without these entries."""
    for entry in sorted(without or ()):
        if first <= entry <= last:
            if first < entry:
                yield first, entry - 1
            first = entry + 1
    if first <= last:
        yield first, last


def _rows(folder: Path, table: str) -> list[Any]:
    from bkbox.audit.tables import read_table, rows_of

    return rows_of(table, read_table(folder, table))


def write_plan(path: Path, steps: Iterable[Step]) -> None:
    """Writes the steps as CSV, with a header line."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(Step._fields)
        writer.writerows((step.action.value, *step[1:]) for step in steps)


def read_plan(path: Path) -> list[Step]:
    """Reads the steps from CSV. Raises OperatorError (no such file), ConfigError (all lines that mean nothing)."""
    try:
        with path.open(newline="") as file:
            lines = list(csv.reader(file))
    except OSError as error:
        raise OperatorError(f"{path} cannot be read: {error.strerror}") from None
    if not lines or tuple(lines[0]) != Step._fields:
        raise ConfigError([f"{path}: line 1 has to be the headings: {','.join(Step._fields)}"])
    steps: list[Step] = []
    problems: list[str] = []
    for number, line in enumerate(lines[1:], 2):
        if not line:
            continue
        try:
            steps.append(_step(line))
        except (ValueError, InvalidIdError) as error:
            problems.append(f"{path}: line {number}: {error}")
    if problems:
        raise ConfigError(problems)
    return steps


def _step(line: list[str]) -> Step:
    if len(line) != len(Step._fields):
        raise ValueError(f"{len(line)} columns where there have to be {len(Step._fields)}")
    try:
        action = Action(line[0])
    except ValueError:
        known = ", ".join(each.value for each in Action)
        raise ValueError(f"{quoted(line[0])} is not an action: {known}") from None
    first, last, entries = map(int, line[3:6])
    if action is Action.OVERWRITE and not line[6]:
        raise ValueError("an overwrite has to say by its sha256 which copy is right")
    if action in (Action.COPY, Action.OVERWRITE) and not 0 <= first <= last:
        raise ValueError(f"entries {first} to {last} are none")
    return Step(
        action, ledger_id(line[1]), bookie_id(line[2]), first, last, entries, line[6], line[7]
    )
