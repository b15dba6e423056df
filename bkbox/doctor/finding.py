"""What a check has found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """``check``: which one; ``about``: of what (a disk, an address; "" for the whole); ``why``: what was found, and
    what follows from it; ``command``: what to run or do ("" where there is nothing to do).

    ``fail``: the bookie does not start, or does not do what it promises. ``warn``: it does, and somebody ought to know.
    """

    check: str
    about: str
    verdict: Verdict
    why: str
    command: str = ""


def ok(check: str, about: str, why: str) -> Finding:
    return Finding(check, about, "ok", why)


def warn(check: str, about: str, why: str, command: str = "") -> Finding:
    return Finding(check, about, "warn", why, command)


def fail(check: str, about: str, why: str, command: str = "") -> Finding:
    return Finding(check, about, "fail", why, command)


def worst(findings: Iterable[Finding]) -> Verdict:
    """Of all; 'ok' of none."""
    verdicts = {finding.verdict for finding in findings}
    return "fail" if "fail" in verdicts else "warn" if "warn" in verdicts else "ok"
