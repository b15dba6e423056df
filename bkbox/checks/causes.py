"""One finding per cause: a finding that is a consequence of another one is listed under it. Pure.

Nothing is dropped, and the worst verdict of all findings stays the same: a cause is at least as bad as its effects.
A finding is only folded under one that is present and not in order; otherwise it stands for itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from bkbox.bookie.readonly import DISK_FULL, DISK_USAGE, INTENTS, OPERATOR, RESERVE_SPENT
from bkbox.checks import registry
from bkbox.checks.bookie import DISK_UNAVAILABLE, NO_DISK_WRITABLE, UNREGISTERED
from bkbox.checks.registry import Check, Effect, Finding, worst


class Cause(NamedTuple):
    """``effect`` is a consequence of ``cause``. ``same_about``: only of the same thing; ``named``: only of what the
    cause's words name; and only if one of the phrases ``says`` is in the effect's words, and ``cause_says`` in the
    cause's."""

    effect: Check
    cause: Check
    same_about: bool = False
    named: bool = False
    says: tuple[str, ...] = ("",)
    cause_says: str = ""


_FULL = (DISK_FULL, DISK_USAGE, RESERVE_SPENT)
_ABSENT = (NO_DISK_WRITABLE, DISK_UNAVAILABLE)

CAUSES = (
    # a start that takes its time
    Cause(registry.NO_DISK, registry.BOOKIE, cause_says="the bookie is "),
    # cookies that differ: what the bookie says of them, and the folders that are empty, or those of another bookie
    Cause(
        registry.COOKIES, registry.COOKIES, says=(registry.DIFFER,), cause_says=registry.NO_START
    ),
    Cause(registry.DISK, registry.COOKIES, named=True, cause_says=registry.NO_START),
    Cause(registry.LOCK, registry.COOKIES, named=True, cause_says=registry.NO_START),
    # a disk that is lost, or whose worker is being started
    Cause(registry.UNLISTED, registry.DISK),
    Cause(registry.NO_DISK, registry.DISK),
    Cause(registry.DEVICE, registry.DISK, same_about=True),
    Cause(registry.LOCK, registry.DISK, same_about=True),
    Cause(registry.RESTARTS, registry.DISK, same_about=True),
    Cause(registry.SPACE, registry.DISK, same_about=True, cause_says="o space left"),
    Cause(registry.WRITABLE, registry.DISK, says=_ABSENT, cause_says="disk "),
    # a process that hangs
    Cause(registry.NO_DISK, registry.PROGRESS),
    Cause(registry.WRITABLE, registry.PROGRESS, says=_ABSENT),
    Cause(registry.WRITABLE, registry.FRONTEND, says=(NO_DISK_WRITABLE,)),
    Cause(registry.FRONTEND, registry.PROGRESS, cause_says="front-end"),
    Cause(registry.REPAIR, registry.PROGRESS, cause_says="the repair worker"),
    # a full disk
    Cause(registry.NO_SPACE, registry.SPACE, same_about=True),
    Cause(registry.WRITABLE, registry.SPACE, says=_FULL, cause_says="takes no new entries"),
    Cause(registry.WRITABLE, registry.NO_SPACE, says=_FULL),
    # the metadata store is away
    Cause(registry.METADATA, registry.METADATA_STORE),
    Cause(registry.UNCOMPARED, registry.METADATA_STORE),
    Cause(registry.COOKIES, registry.METADATA_STORE, says=("cannot be compared",)),
    Cause(registry.USE, registry.METADATA_STORE),
    Cause(registry.REPLICAS, registry.METADATA_STORE, says=("does not say",)),
    Cause(registry.UNCOMPARED, registry.METADATA),
    Cause(registry.USE, registry.METADATA),
    Cause(registry.REPLICAS, registry.METADATA, says=("does not say",)),
    Cause(registry.WRITABLE, registry.METADATA, says=(UNREGISTERED,)),
    # ledgers in limbo, and copies that are short: what the jobs that mend them cannot do. The warning that such a job
    # needs help stands for itself: the status document lists no effects.
    Cause(registry.BLOCKED, registry.LIMBO),
    Cause(registry.BOOKIE, registry.LIMBO, says=("(limbo)",)),
    Cause(registry.BOOKIE, registry.COPIES, says=("(check)",)),
    # what an operator asked for
    Cause(registry.WRITABLE, registry.READ_ONLY, says=tuple(sorted(INTENTS))),
    Cause(registry.WRITABLE, registry.BOOKIE, says=(OPERATOR,), cause_says="as was asked for"),
    # a kill of the whole bookie
    Cause(registry.LEFTOVERS, registry.LAST_STOP, says=("by a bookie that was killed",)),
)
"""In the order in which they are tried."""

ALIKE = frozenset({registry.LAST_STOP.id, registry.FILE_SYSTEM.id, registry.SPACE.id})
"""Checks of folders whose findings in the same words have one cause: one kill, one file system."""


def fold(findings: Iterable[Finding]) -> list[Finding]:
    """The causes, each with its effects, in the order of the findings. What is in order stays as it is."""
    found = list(findings)
    above: list[int | None] = [None] * len(found)
    for place in range(len(found)):
        cause = _cause_of(place, found)
        if cause is not None and _root(cause, above) != place:
            above[place] = cause
    effects: dict[int, list[Finding]] = {}
    for place, each in enumerate(found):
        if above[place] is not None:
            effects.setdefault(_root(place, above), []).append(each)
    return [
        _with_effects(each, effects.get(place, []))
        for place, each in enumerate(found)
        if above[place] is None
    ]


def _cause_of(place: int, found: Sequence[Finding]) -> int | None:
    effect = found[place]
    if effect.verdict == "ok":
        return None
    for row in CAUSES:
        if row.effect.id == effect.check and any(each in effect.why for each in row.says):
            for other, cause in enumerate(found):
                if other != place and _is_cause(row, cause, effect):
                    return other
    for other, cause in enumerate(found[:place]):
        if cause.why == effect.why and _has_one_cause(cause, effect):
            return other
    return None


def _has_one_cause(one: Finding, other: Finding) -> bool:
    """Of two findings in the same words: two checks that met the same thing, or two folders that share theirs."""
    if one.check != other.check:
        return one.verdict != "ok"
    return one.check in ALIKE and one.verdict == other.verdict


def _is_cause(row: Cause, cause: Finding, effect: Finding) -> bool:
    return (
        cause.check == row.cause.id
        and cause.verdict != "ok"
        and row.cause_says in cause.why
        and (not row.same_about or effect.about.removeprefix("worker ") == cause.about)
        and (not row.named or _names(cause.why, effect.about))
    )


def _names(text: str, about: str) -> bool:
    return bool(about) and re.search(rf"(?<!\S){re.escape(about)}(?![^\s,;:])", text) is not None


def _root(place: int, above: Sequence[int | None]) -> int:
    """The first cause."""
    while (cause := above[place]) is not None:
        place = cause
    return place


def _with_effects(cause: Finding, effects: Sequence[Finding]) -> Finding:
    if not effects:
        return cause
    listed = tuple(
        Effect(each.check, each.about, each.verdict, each.why, each.command) for each in effects
    )
    return replace(cause, verdict=worst([cause, *effects]), effects=listed)
