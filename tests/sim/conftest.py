"""Simulated processes that die leave clients behind that nobody closed; they are to be gone before the next test."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

_IGNORED = pytest.mark.filterwarnings("ignore:.*was not closed:ResourceWarning")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(_IGNORED)


@pytest.fixture
def nobody_is_left() -> Iterator[None]:
    yield
    gc.collect()
