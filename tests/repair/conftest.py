"""Clusters for the tests of autorecovery."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.repair.copies import Cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(tmp_path)
    yield found
    found.close()
