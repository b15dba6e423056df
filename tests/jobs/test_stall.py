"""What ought to get on and does not: said with its reason, and only then."""

from __future__ import annotations

from typing import Any

from bkbox.jobs.job import JobAction, JobKind
from bkbox.jobs.registry import Registry
from bkbox.jobs.stall import stalls

HOUR_MS = 3_600_000
EVERY: dict[JobKind, float | None] = {JobKind.GC: 900.0, JobKind.SCRUB: None}


def told(registry: Registry, now_ms: int, began_ms: int = 0) -> list[str]:
    return [each.text for each in stalls(registry, EVERY, began_ms=began_ms, now_ms=now_ms)]


def run(registry: Registry, kind: JobKind, state: str, now_ms: int, **values: Any) -> int:
    job = registry.add(kind, {}, now_ms)
    registry.report({"id": job.id, "state": "running"}, now_ms)
    registry.report({"id": job.id, "state": state, **values}, now_ms)
    return job.id


def test_a_collection_that_does_not_come_to_its_end() -> None:
    registry = Registry()
    assert told(registry, HOUR_MS) == []
    assert told(registry, 2 * HOUR_MS) == ["no gc has come to its end for 2 h: none was started"]
    assert told(registry, 2 * HOUR_MS, began_ms=HOUR_MS) == []
    run(registry, JobKind.GC, "done", 2 * HOUR_MS)
    assert told(registry, 3 * HOUR_MS) == []
    failed = run(registry, JobKind.GC, "failed", 3 * HOUR_MS, error="the store is away")
    assert told(registry, 3 * HOUR_MS) == [], "one that fails is said elsewhere"
    assert told(registry, 9 * HOUR_MS) == [
        f"no gc has come to its end for 7 h: job {failed} failed: the store is away"
    ]
    paused = registry.add(JobKind.GC, {}, 9 * HOUR_MS)
    registry.control(paused.id, JobAction.PAUSE)
    assert (
        f"job {paused.id} is paused; `bkbox job resume {paused.id}`"
        in told(registry, 9 * HOUR_MS)[0]
    )
    registry.control(paused.id, JobAction.RESUME)
    registry.report({"id": paused.id, "state": "running", "step": "listing"}, 9 * HOUR_MS)
    assert told(registry, 9 * HOUR_MS)[0].endswith(f"job {paused.id} is running: listing")
    registry.report({"id": paused.id, "state": "done"}, 9 * HOUR_MS)
    assert told(registry, 9 * HOUR_MS) == []


def test_a_job_that_gets_no_further() -> None:
    registry = Registry()
    job = registry.add(JobKind.DRAIN, {"disk": "a"}, 0)
    values = {"id": job.id, "state": "running", "step": "moves ledger 7", "idle_minutes": 12}
    registry.report(values, 0)
    assert told(registry, 0) == [
        f"job {job.id} (drain) has got no further for 12 minutes: moves ledger 7"
    ]
    registry.report({**values, "state": "paused"}, 0)
    assert told(registry, 0) == []
    registry.report({**values, "idle_minutes": 9}, 0)
    assert told(registry, 0) == []


def test_a_compaction_that_frees_nothing() -> None:
    registry = Registry()
    run(registry, JobKind.COMPACTION, "done", 0, counts={"segments_kept": 2})
    [text] = told(registry, 0)
    assert "freed nothing: garbage stays in 2 segments; `bkbox gc status` says why" in text
    run(registry, JobKind.COMPACTION, "done", 0, counts={"segments_kept": 2, "bytes_freed": 5})
    assert told(registry, 0) == []
