"""The views for gates and load balancers, over the status document: /healthz, /readyz, ``bkbox health``. Pure.

=====  ==============================================================================================
ok     nothing to be done
warn   it serves, and needs attention
fail   something that it is there for does not work
=====  ==============================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bkbox.api.admin.status import Status
from bkbox.checks import registry
from bkbox.checks.bookie import of_status
from bkbox.checks.causes import fold
from bkbox.checks.registry import Effect, Finding, Verdict, worst


@dataclass(frozen=True, slots=True)
class Probe:
    """A disk was written to and read from, or not: ``problem`` says why. ``took_ms`` with what the worker had to do
    before."""

    path: str
    problem: str
    took_ms: float
    at_ms: int


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check; ``command``: what shows more, or mends it; ``effects``: what it causes elsewhere."""

    name: str
    state: Verdict
    text: str
    command: str = ""
    effects: tuple[Effect, ...] = ()


@dataclass(frozen=True, slots=True)
class Health:
    """``state``: the worst of the checks."""

    state: Verdict
    checks: tuple[Check, ...] = ()


def health_of(status: Status, probes: Sequence[Probe]) -> Health:
    """/healthz. ``probes``: the last one of each disk."""
    found = [each for each in of_status(status) if registry.HEALTHZ in each.views]
    found += map(_probed, probes)
    return Health(
        worst(found),
        tuple(
            Check(
                f"{each.check} {each.about}".rstrip(),
                *(each.verdict, each.why, each.command, each.effects),
            )
            for each in fold(found)
        ),
    )


def not_ready(status: Status) -> str:
    """/readyz: why clients should not be sent to the bookie, each cause once; "" where they should."""
    failed = [each for each in _bad(status, registry.READYZ) if each.verdict == "fail"]
    return "; ".join(each.why for each in fold(failed))


def not_whole(status: Status) -> list[str]:
    """``bkbox health``: why a bookie is not whole, by what it says of itself: each cause once; empty if it is."""
    return [each.why for each in fold(_bad(status, registry.HEALTH))]


def _bad(status: Status, view: str) -> list[Finding]:
    return [each for each in of_status(status) if each.verdict != "ok" and view in each.views]


def _probed(probe: Probe) -> Finding:
    if probe.problem:
        return registry.PROBE.fail(probe.problem, probe.path)
    return registry.PROBE.ok(f"written, synced and read back in {probe.took_ms:.1f} ms", probe.path)
