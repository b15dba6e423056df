"""Devices for tests, where the machine can have them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.device.blockdevice import FILE_SYSTEMS, BlockDevice, missing


@pytest.fixture(params=FILE_SYSTEMS)
def device(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BlockDevice]:
    """A device with an empty ext4 with a journal, and one with xfs."""
    if lacks := missing(request.param):
        pytest.skip(f"no block device: {lacks}")
    with BlockDevice(tmp_path / "device", fs=request.param) as made:
        yield made
