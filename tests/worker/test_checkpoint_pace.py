"""The rests of a checkpoint: how long, and when there is none."""

from __future__ import annotations

from bkbox.worker.checkpoint_pace import CheckpointPace


class _Time:
    """In microseconds; ``rests``: those that were taken, in seconds."""

    def __init__(self) -> None:
        self.now_us = 1_000_000
        self.rests: list[float] = []

    def ticks_us(self) -> int:
        return self.now_us

    def sleep(self, seconds: float) -> None:
        self.rests.append(seconds)
        self.now_us += round(seconds * 1e6)

    def pace(self, *, urgent: list[bool]) -> CheckpointPace:
        return CheckpointPace(lambda: urgent[0], self.ticks_us, self.sleep)


def test_it_computes_for_a_fifth_of_the_time() -> None:
    time = _Time()
    pace = time.pace(urgent=[False])
    begin_us, worked_us = time.now_us, 0
    for _ in range(1_000):
        time.now_us += 130
        worked_us += 130
        pace.rest()
    assert worked_us / (time.now_us - begin_us) == 0.2


def test_a_piece_that_took_long_is_followed_by_a_short_rest_only() -> None:
    time = _Time()
    pace = time.pace(urgent=[False])
    time.now_us += 10_000_000
    pace.rest()
    assert time.rests == [0.02]
    pace.rest()
    assert len(time.rests) == 1, "nothing has been done since"


def test_what_is_urgent_goes_on_without_a_rest() -> None:
    time, urgent = _Time(), [True]
    pace = time.pace(urgent=urgent)
    for _ in range(10):
        time.now_us += 1_000
        pace.rest()
    assert time.rests == []
    urgent[0] = False
    time.now_us += 1_000
    pace.rest()
    assert time.rests == [0.004], "work of before is not made up for"
