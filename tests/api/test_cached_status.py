"""The parts of the status that are inspected in the background."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bkbox.api.status.cached_status import CachedStatus
from bkbox.api.status.config_file import ConfigFile


def test_what_was_seen_before_a_fault_does_not_pass_for_new(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Configuration and store have nothing of what is asked for: each part meets an AttributeError."""
    nothing: Any = SimpleNamespace()
    file = ConfigFile(tmp_path / "bookie.toml", {})

    async def scenario() -> None:
        cached = CachedStatus(lambda: nothing, file, nothing, nothing)
        await cached.refresh()
        for part in (cached.cookies, cached.autorecovery, cached.losses):
            assert part.problem.startswith("a fault of bkbox: AttributeError: ")
        await cached.close()

    asyncio.run(scenario())
    assert caplog.text.count("AttributeError: ") == 3
