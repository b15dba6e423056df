"""Folders for disks whose durability is simulated: in memory, where there is such a file system."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_MEMORY = Path("/dev/shm")


@pytest.fixture
def ram_path() -> Iterator[Path]:
    """An empty folder without the waiting of a disk that other processes keep busy."""
    memory = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory, prefix="bkbox-test-") as folder:
        yield Path(folder)
