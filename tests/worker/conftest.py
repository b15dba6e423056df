"""What tests of a worker share."""

from __future__ import annotations

import pytest

from bkbox.worker import commit_groups


@pytest.fixture(autouse=True)
def large_syncs_of_few_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sync of two adds of 50 kB runs on another thread already."""
    monkeypatch.setattr(commit_groups, "_AT_ONCE_BYTES", 64 << 10)
