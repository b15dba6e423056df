"""The folder in which everything happens: in memory, if possible, since nothing of it has to survive."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_MEMORY = Path("/dev/shm")


@pytest.fixture
def watched() -> Iterator[Path]:
    """An empty folder with a name that does not lead through symbolic links."""
    memory = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory, prefix="bkbox-points-") as folder:
        yield Path(folder).resolve()
