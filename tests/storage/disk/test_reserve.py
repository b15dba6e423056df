"""The reserve of a disk: spent in parts by checkpoints, whole by those who tidy up, made again piece by piece."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkbox.storage.disk.reserve import RESERVE_NAME, Reserve
from bkbox.storage.files import RealFiles

MIB = 1 << 20


def made(disk: Path, size: int) -> Reserve:
    reserve = Reserve(RealFiles(), disk, size)
    while not reserve.is_whole:
        reserve.grow(free=3 * size)
    return reserve


def on_disk(disk: Path) -> int:
    path = disk / RESERVE_NAME
    return path.stat().st_size if path.exists() else 0


def test_checkpoints_spend_a_quarter_each(tmp_path: Path) -> None:
    reserve = made(tmp_path, 8 * MIB)
    left = []
    while reserve.spend_part():
        assert on_disk(tmp_path) == reserve.bytes
        left.append(reserve.bytes // MIB)
    assert left == [6, 4, 2, 0]
    assert not (tmp_path / RESERVE_NAME).exists()


def test_what_checkpoints_left_is_there_for_those_who_tidy_up(tmp_path: Path) -> None:
    made(tmp_path, 8 * MIB).spend_part()
    reserve = Reserve(RealFiles(), tmp_path, 8 * MIB)  # after a restart
    assert reserve.bytes == 6 * MIB
    assert reserve.spend()
    assert on_disk(tmp_path) == reserve.bytes == 0
    assert not reserve.spend()
    assert not reserve.spend_part()


@pytest.mark.parametrize("size", [1, 64 << 10, 200 << 10])
def test_a_small_reserve_is_spent_all_the_same(tmp_path: Path, size: int) -> None:
    reserve = made(tmp_path, size)
    spent = 0
    while reserve.spend_part():
        spent += 1
    assert 1 <= spent <= 4
    assert on_disk(tmp_path) == 0


def test_a_reserve_that_is_to_be_smaller_now_is_spent_to_its_end(tmp_path: Path) -> None:
    reserve = made(tmp_path, 4 * MIB)
    reserve.bytes_max = 0
    while reserve.spend_part():
        pass
    assert on_disk(tmp_path) == 0


def test_a_spent_part_is_made_again(tmp_path: Path) -> None:
    reserve = made(tmp_path, 4 * MIB)
    reserve.spend_part()
    reserve.grow(free=4 * MIB)  # as much as the whole reserve has to stay free beside it
    assert not reserve.is_whole
    reserve.grow(free=5 * MIB)
    assert reserve.is_whole
    assert on_disk(tmp_path) == 4 * MIB
