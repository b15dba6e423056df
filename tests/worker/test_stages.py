"""What a disk says of the time of its writers' adds, which is what the jobs must not slow down."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from bkbox.worker.stages import Stages


def record(
    stages: Stages, *, entries: int, recovered: int, took_us: int, failure: object = None
) -> None:
    work = SimpleNamespace(
        adds=SimpleNamespace(entries=entries, recovered=recovered // 2),
        slow_path=SimpleNamespace(recovered=recovered - recovered // 2),
        received_us=10,
        written_us=20,
        indexed_us=30,
        failure=failure,
        has_changes=bool(entries),
    )
    group = SimpleNamespace(opened_us=0)
    stages.record(cast(Any, group), cast(Any, work), took_us)


def test_the_latest_adds_are_those_since_it_was_last_asked() -> None:
    stages = Stages(0, lambda: 1_000_000)
    record(stages, entries=99, recovered=0, took_us=1_000)
    record(stages, entries=1, recovered=0, took_us=50_000)
    adds, p99_us = stages.latest()
    assert adds == 100
    assert 1_000 <= p99_us <= 1_040
    assert stages.latest() == (0, 0)
    record(stages, entries=10, recovered=0, took_us=50_000)
    assert stages.latest()[1] >= 50_000
    assert stages.values()["append"]["count"] == 110


def test_entries_that_repair_writes_are_not_those_of_writers() -> None:
    stages = Stages(0, lambda: 1_000_000)
    record(stages, entries=50, recovered=50, took_us=900_000)
    record(stages, entries=0, recovered=0, took_us=900_000)
    assert stages.latest() == (0, 0)
    record(stages, entries=5, recovered=2, took_us=1_000)
    assert stages.latest()[0] == 3


def test_an_add_counts_once_it_is_acknowledged_and_a_read_as_a_read() -> None:
    clock = [1_000_000]
    stages = Stages(0, lambda: clock[0])
    record(stages, entries=3, recovered=0, took_us=1_000)
    record(stages, entries=2, recovered=0, took_us=1_000, failure="EIO")
    record(stages, entries=0, recovered=0, took_us=900_000)
    stages.record_reads(cast(Any, SimpleNamespace(opened_us=999_000)), 7)
    stages.record_reads(cast(Any, SimpleNamespace(opened_us=0)), 0)
    found = stages.operations()
    assert (found["add"]["count"], found["read"]["count"]) == (3, 7)
    assert found["add"]["total_us"] == 3_000_000, "from the front-end's batch on"
    assert found["read"]["max_us"] == 1_000
    assert {each["count"] for each in stages.values().values()} == {5}, "of adds alone"
