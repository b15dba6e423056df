"""Tasks that nobody awaits."""

from __future__ import annotations

import asyncio
import logging

import pytest

from bkbox.base import background


def test_only_a_fault_is_in_the_log_and_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ZeroDivisionError("of no use")

    async def scenario() -> None:
        well = background.start(asyncio.sleep(0), "one that ends")
        waits = background.start(asyncio.sleep(3600), "one that waits")
        fails = background.start(fail(), "one that fails")
        await asyncio.wait([fails, well])
        waits.cancel()
        await asyncio.wait([waits])
        assert [record.getMessage() for record in caplog.records] == [
            "one that fails has ended, which is a fault"
        ]
        assert "of no use" in caplog.text

    caplog.set_level(logging.DEBUG, "bkbox")
    asyncio.run(scenario())
