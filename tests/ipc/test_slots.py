"""Slots: what one side writes is what the other reads, through a descriptor alone."""

from __future__ import annotations

import os

import pytest

from bkbox.ipc.slots import SEGMENT_HEADER, SLOT_BYTES, SLOT_COUNT, SlotArea, SlotWriter, segments
from bkbox.limits import FRAME_BYTES_MAX


def test_segments_come_back_in_order_on_the_other_mapping() -> None:
    ours = SlotArea.create("test")
    theirs = SlotArea(os.dup(ours.fd))
    writer = SlotWriter(ours.slot(3))
    writer.add(7, b"one", 1)
    writer.add(9, b"", 0)
    writer.add(7, b"three" * 1000, 5)
    found = [(c, n, bytes(f)) for c, n, f in segments(theirs.slot(3)[: writer.used])]
    assert found == [(7, 1, b"one"), (9, 0, b""), (7, 5, b"three" * 1000)]
    ours.close()
    theirs.close()


def test_the_largest_frame_fits_into_an_empty_slot() -> None:
    area = SlotArea.create("test")
    writer = SlotWriter(area.slot(0))
    assert writer.room() >= FRAME_BYTES_MAX
    writer.add(1, b"x" * writer.room(), 1)
    assert writer.used == SLOT_BYTES
    assert writer.room() == -SEGMENT_HEADER.size
    area.close()


def test_slots_do_not_overlap() -> None:
    area = SlotArea.create("test")
    for index in range(SLOT_COUNT):
        area.slot(index)[:] = bytes([index]) * SLOT_BYTES
    assert all(set(area.slot(index)) == {index} for index in range(SLOT_COUNT))
    with pytest.raises(IndexError):
        area.slot(SLOT_COUNT)
    area.close()
