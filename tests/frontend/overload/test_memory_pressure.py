"""When too much is held: who has to go, in which order, and who stays."""

from __future__ import annotations

from bkbox.frontend.overload.memory_pressure import MemoryPressure

MIB = 1 << 20


class Connection:
    def __init__(self, number: int, bytes_held: int) -> None:
        self.number = number
        self.bytes_held = bytes_held
        self.received = self.sent = 0

    def buffered_bytes(self) -> int:
        return self.bytes_held


class Scene:
    def __init__(self, *bytes_held: int) -> None:
        self.buffered_max = 100 * MIB
        self.now = 0.0
        self.connections = [Connection(*each) for each in enumerate(bytes_held)]
        self.ended: list[int] = []
        self.shedding = MemoryPressure(
            self, lambda: list(self.connections), self._end, lambda: self.now
        )

    @property
    def buffered(self) -> int:
        return sum(each.bytes_held for each in self.connections)

    def above_hard_limit(self) -> bool:
        return self.buffered > self.buffered_max

    def _end(self, connection: Connection, _reason: str) -> None:
        self.connections.remove(connection)
        self.ended.append(connection.number)

    def run(self, seconds: float, moving: tuple[int, ...] = ()) -> None:
        until = self.now + seconds
        while self.now < until:
            self.shedding.tick()
            for each in self.connections:
                each.sent += each.number in moving
            wait_s = self.shedding.wait_s()
            self.now = until if wait_s is None else self.now + max(wait_s, 0.01)


def test_nobody_goes_while_there_is_room() -> None:
    scene = Scene(60 * MIB, 40 * MIB)
    scene.run(100)
    assert not scene.ended


def test_the_largest_that_do_not_move_go_until_a_quarter_is_free() -> None:
    scene = Scene(10 * MIB, 40 * MIB, 1000, 30 * MIB, 25 * MIB)
    scene.run(0.9)
    assert not scene.ended
    scene.run(1)
    assert scene.ended == [1]
    scene.run(100)
    assert scene.ended == [1]


def test_who_moves_stays_as_long_as_others_do_not() -> None:
    scene = Scene(60 * MIB, 30 * MIB, 20 * MIB)
    scene.run(2, moving=(0,))
    assert scene.ended == [1, 2]


def test_if_all_move_the_largest_goes_in_the_end() -> None:
    scene = Scene(20 * MIB, 60 * MIB, 30 * MIB)
    scene.run(4.5, moving=(0, 1, 2))
    assert not scene.ended
    scene.run(2, moving=(0, 1, 2))
    assert scene.ended == [1]


def test_nobody_is_still_while_the_front_end_is_held_up() -> None:
    scene = Scene(60 * MIB, 50 * MIB)
    scene.run(0.1)
    scene.now += 30
    scene.shedding.tick()
    assert not scene.ended
    scene.run(2, moving=(1,))
    assert scene.ended == [0]
