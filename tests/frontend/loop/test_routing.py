"""Which disk has a ledger, and frames that are packed for it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from bkbox.frontend.loop.routing import DiskQueue, LedgerTable
from bkbox.ipc.frame_spans import segments

LEDGERS = st.one_of(
    st.integers(0, 20), st.integers(0, 2**63 - 1), st.integers(0, 50).map(lambda n: n << 40)
)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(LEDGERS, st.integers(0, 5)), max_size=700))
def test_a_table_is_a_dictionary(records: list[tuple[int, int]]) -> None:
    table = LedgerTable()
    expected: dict[int, int] = {}
    for ledger, disk in records:
        assert table.put(ledger, disk) == expected.get(ledger, -1)
        expected[ledger] = disk
    assert table.count == len(expected)
    for ledger, disk in expected.items():
        assert table.get(ledger) == disk
        assert table.get(ledger ^ 1) == expected.get(ledger ^ 1, -1)
    assert table.get(-1) == -1
    assert table.get(-(2**63)) == -1


class Slots:
    """Gives out so many slots and keeps what was put into them."""

    def __init__(self, count: int, size: int) -> None:
        self.lane = DiskQueue(self.more)
        self.left = [memoryview(bytearray(size)) for _ in range(count)]
        self.filled: list[list[tuple[int, int, bytes]]] = []
        self.present: memoryview | None = None

    def more(self) -> memoryview | None:
        self.take()
        self.present = self.left.pop() if self.left else None
        return self.present

    def take(self) -> None:
        if self.present is not None:
            found = segments(self.present, self.lane.finish())
            self.filled.append([(c, n, bytes(frames)) for c, n, frames in found])
            self.present = None


def test_frames_of_several_connections_and_one_that_is_closed() -> None:
    slots = Slots(2, 1 << 20)
    for connection, frame in ((7, b"one"), (7, b"two"), (9, b"three"), (7, b"four")):
        data = b"before" + frame + b"after"
        assert slots.lane.put(connection, data, 6, 6 + len(frame))
    assert slots.lane.put_closed(7)
    assert slots.lane.put(7, b"five", 0, 4)
    slots.take()
    assert slots.filled == [
        [(7, 2, b"onetwo"), (9, 1, b"three"), (7, 1, b"four"), (7, 0, b""), (7, 1, b"five")]
    ]
    assert slots.lane.used == 0


def test_a_slot_is_left_when_it_is_full_enough_and_a_large_frame_gets_one_of_its_own() -> None:
    slots = Slots(4, 3 << 20)
    sizes = [700_000, 300_000, 60_000, 2_500_000, 100]
    for size in sizes:
        assert slots.lane.put(1, bytes(size), 0, size)
    slots.take()
    assert [[len(frames) for _, _, frames in slot] for slot in slots.filled] == [
        [1_000_000],
        [60_000],
        [2_500_000],
        [100],
    ]


def test_without_a_free_slot_nothing_is_taken() -> None:
    slots = Slots(1, 1 << 20)
    assert slots.lane.put(1, bytes(800_000), 0, 800_000)
    assert not slots.lane.put(1, bytes(800_000), 0, 800_000)
    assert not slots.lane.put_closed(1)
    assert [len(frames) for _, _, frames in slots.filled[0]] == [800_000]
    slots.left.append(memoryview(bytearray(1 << 20)))
    assert slots.lane.put_closed(1)
