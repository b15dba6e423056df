"""Slots: what one side writes is what the other reads, through a descriptor alone."""

from __future__ import annotations

import os

import pytest

from bkbox.base.limits import FRAME_BYTES_MAX, RECORD_BODY_BYTES_MAX
from bkbox.ipc.slots import SLOT_BYTES, SLOT_COUNT, SlotArea


def test_what_is_written_is_there_on_the_other_mapping() -> None:
    ours = SlotArea.create("test")
    theirs = SlotArea(os.dup(ours.fd))
    ours.slots[3][:5] = b"three"
    assert theirs.slots[3][:5] == b"three"
    assert theirs.view[3 * SLOT_BYTES :][:5] == b"three"
    ours.close()
    theirs.close()


def test_slots_do_not_overlap_and_hold_the_largest_frame() -> None:
    area = SlotArea.create("test")
    for index in range(SLOT_COUNT):
        area.slots[index][:] = bytes([index]) * SLOT_BYTES
    assert all(set(area.slots[index]) == {index} for index in range(SLOT_COUNT))
    assert min(map(len, area.slots)) > max(FRAME_BYTES_MAX, RECORD_BODY_BYTES_MAX)
    with pytest.raises(IndexError):
        area.slots[SLOT_COUNT]
    area.close()
