"""A bookie that is killed at a random moment of long work, comes back, and goes on with it."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

from bkbox.api.admin.socket_path import JOBS_URL
from bkbox.errors import BkboxError
from bkbox.jobs.job import JobKind
from tests.harness.processes import BookieProcess
from tests.harness.waiting import wait_for

_ASKED = os.environ.get("REPAIR_KILLS", "2")
KILLS = 100 if _ASKED == "all" else int(_ASKED)
"""Of each kind of work."""

ENDED = ("done", "failed", "cancelled")
TIMEOUT_S = 60 * KILLS if KILLS > 20 else 600


def seeds() -> Iterator[random.Random]:
    for seed in range(KILLS):
        yield random.Random(seed)


def kill_within(
    bookie: BookieProcess, rng: random.Random, seconds: float, kind: JobKind | None = None
) -> bool:
    """At a random moment of the next so many seconds; it is back when this returns. Once in a while twice.

    Whether a kill met a job of this kind that had not ended.
    """
    met = False
    for _ in range(1 + (rng.random() < 0.3)):
        time.sleep(rng.uniform(0.0, seconds))
        met |= is_at_work(bookie, kind)
        bookie.kill()
        bookie.start()
    return met


def is_at_work(bookie: BookieProcess, kind: JobKind | None) -> bool:
    """Whether it has a job of this kind that has not ended."""
    return kind is not None and any(each["state"] not in ENDED for each in jobs(bookie, kind))


def enough_met(met: int) -> None:
    """Kills that come when all is over prove nothing. With few of them chance decides."""
    print(f"{met} of {KILLS} kills met the work")
    assert KILLS <= 20 or met >= KILLS // 4, f"only {met} of {KILLS} kills met the work"


def jobs(bookie: BookieProcess, kind: str) -> list[dict[str, Any]]:
    """Of this kind; none while the bookie is not up."""
    try:
        found = bookie.ask(JOBS_URL)
    except BkboxError:
        return []
    return [each for each in found if each["kind"] == kind]


def wait_for_job(bookie: BookieProcess, kind: str, before: int) -> dict[str, Any]:
    """The end of the newest job of this kind, which is not one of the first ``before``."""

    def ended() -> dict[str, Any] | None:
        found = jobs(bookie, kind)
        if len(found) <= before or found[-1]["state"] not in ENDED:
            return None
        return found[-1]

    job: dict[str, Any] = wait_for(ended, f"the end of a {kind}", timeout=150, pause=0.3)
    return job


def eventually(check: Callable[[], bool], what: str) -> None:
    wait_for(check, what, timeout=150, pause=0.3)
