"""Fixtures for tests of real bookies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness.processes import BookieProcess

MakeBookie = Callable[..., BookieProcess]


@pytest.fixture
def make_bookie(tmp_path: Path) -> Iterator[MakeBookie]:
    """make_bookie(name="bookie", metadata="metadata.db", **settings): initialised, not started.

    Repair tries once and then waits: a test checks what the boot left, not what repair makes of it. However
    the test ends, the bookies are gone afterwards.
    """
    made: list[BookieProcess] = []

    def make(
        name: str = "bookie", metadata: str = "metadata.db", **settings: object
    ) -> BookieProcess:
        bookie = BookieProcess(tmp_path, f"sqlite:{tmp_path / metadata}", name=name)
        made.append(bookie)
        calm = {"repair_retry_initial_s": 600, "repair_retry_max_s": 600}
        return bookie.init(**{**calm, **settings})

    yield make
    for bookie in made:
        bookie.ensure_gone()
