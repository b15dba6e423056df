"""Connections that keep the bookie waiting: when each of them is given up, and when none is."""

from __future__ import annotations

import pytest

from bkbox.frontend.loop.connection import IDLE, PARTIAL_FRAME, SERVER, UNSENT
from bkbox.frontend.overload.connection_timeouts import (
    POLL_INTERVAL_S,
    ConnectionTimeouts,
    TimeoutSettings,
)

PATIENCE = TimeoutSettings(frame_s=10.0, unsent_s=20.0, idle_s=40.0)


class Connection:
    def __init__(self, state: int = IDLE) -> None:
        self.state = state
        self.received = 0
        self.sent = 0
        self.watched = (0, 0)
        self.watched_since = 0.0

    def blocked_on(self) -> int:
        return self.state


class Scene:
    def __init__(self, timeouts: TimeoutSettings = PATIENCE) -> None:
        self.now = 0.0
        self.connections: list[Connection] = []
        self.ended: list[tuple[float, Connection, str]] = []
        self.deadlines = ConnectionTimeouts(lambda: self.connections, self._end, lambda: self.now)
        self.deadlines.timeouts = timeouts

    def _end(self, connection: Connection, reason: str) -> None:
        self.ended.append((self.now, connection, reason))
        self.connections.remove(connection)

    def add(self, state: int) -> Connection:
        connection = Connection(state)
        self.connections.append(connection)
        return connection

    def run_to(self, until: float) -> None:
        while self.now < until:
            self.deadlines.tick()
            self.now += max(self.deadlines.wait_s(), 0.001)


@pytest.mark.parametrize(
    ("state", "taken", "limit", "reason"),
    [
        (PARTIAL_FRAME, 5, 10.0, "not ended"),
        (PARTIAL_FRAME, 0, 10.0, "not ended"),
        (UNSENT, 5, 20.0, "read nothing"),
        (IDLE, 5, 40.0, "idle"),
        (IDLE, 0, 10.0, "sent no request"),
    ],
)
def test_when_a_connection_is_given_up(state: int, taken: int, limit: float, reason: str) -> None:
    scene = Scene()
    scene.add(state).received = taken
    scene.run_to(limit - 1)
    assert not scene.ended
    scene.run_to(limit + 3 * POLL_INTERVAL_S)
    [(_when, _who, said)] = scene.ended
    assert reason in said


def test_what_waits_for_the_bookie_waits_for_ever() -> None:
    scene = Scene()
    scene.add(SERVER)
    scene.run_to(1000)
    assert not scene.ended


@pytest.mark.parametrize("state", [PARTIAL_FRAME, IDLE, UNSENT])
def test_without_patience_set_nobody_is_given_up(state: int) -> None:
    scene = Scene(TimeoutSettings())
    scene.add(state)
    scene.run_to(1000)
    assert not scene.ended


def test_frames_that_come_and_answers_that_go_begin_the_time_anew() -> None:
    scene = Scene()
    asks, takes = scene.add(PARTIAL_FRAME), scene.add(UNSENT)
    for second in range(0, 200, 5):
        asks.received += 1
        takes.sent += 1
        scene.run_to(second)
    assert not scene.ended
    # Who asks more does not take more, and the other way round.
    for second in range(200, 260, 5):
        asks.sent += 1
        takes.received += 1
        scene.run_to(second)
    assert [who for _, who, _ in scene.ended] == [asks, takes]


def test_many_are_looked_at_in_turns() -> None:
    scene = Scene()
    for _ in range(1700):
        scene.add(PARTIAL_FRAME)
    scene.deadlines.tick()
    assert 0 < scene.deadlines.wait_s() < 0.1 < POLL_INTERVAL_S
    scene.run_to(16)
    assert len(scene.ended) == 1700


def test_what_came_while_the_front_end_was_held_up_is_taken_first() -> None:
    scene = Scene()
    waited, hung = scene.add(PARTIAL_FRAME), scene.add(PARTIAL_FRAME)
    scene.run_to(5)
    scene.now += 60
    scene.deadlines.tick()
    assert not scene.ended
    waited.received += 1
    scene.deadlines.tick()
    assert [who for _when, who, _reason in scene.ended] == [hung]
