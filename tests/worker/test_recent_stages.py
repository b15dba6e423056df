"""What stages took lately is told beside what they have taken since the worker began."""

from __future__ import annotations

from bkbox.worker.stages import STAGES, Stages

APPEND, FSYNC = STAGES.index("append"), STAGES.index("fsync")


class Clock:
    us = 0

    def __call__(self) -> int:
        return self.us


def test_an_old_slowness_leaves_the_recent_figures_and_stays_in_the_whole() -> None:
    clock = Clock()
    stages = Stages(0, clock)
    stages._stages.window[FSYNC].record(900_000, 10)
    assert stages.values()["fsync"]["recent_p99_us"] >= 900_000
    for _ in range(3):
        clock.us += 40_000_000
        stages._stages.window[FSYNC].record(1_000, 100)
        found = stages.values()["fsync"]
    assert found["count"] == 310
    assert found["max_us"] == 900_000
    assert found["p999_us"] >= 900_000
    assert found["total_us"] == 9_000_000 + 300_000
    assert 100 <= found["recent_count"] <= 200
    assert 1_000 <= found["recent_p99_us"] <= 1_040


def test_nothing_is_counted_twice_or_lost_between_two_windows() -> None:
    clock = Clock()
    stages = Stages(0, clock)
    for second in range(120):
        clock.us = second * 1_000_000
        stages._stages.window[APPEND].record(50)
        assert stages.values()["append"]["count"] == second + 1
    assert 30 <= stages.values()["append"]["recent_count"] <= 61
