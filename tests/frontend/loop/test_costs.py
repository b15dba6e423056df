"""What a thousand adds cost from the socket to the log: system calls of the front-end, and copies of each byte.

Counted on the interpreted kernel, whose calls can be seen; the compiled one is the same source.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from pathlib import Path
from types import FrameType

import pytest

from bkbox.native import kernel_in_use, memory
from tests.frontend.inprocess import InProcessBookie, serving
from tests.harness import raw

pytestmark = pytest.mark.skipif(
    kernel_in_use() == "compiled", reason="counted in the run on the interpreted kernel"
)

GROUPS = 10
EACH = 100
PAYLOAD = bytes(1_000)
ADD_BYTES = len(raw.add_frame(1, 0, PAYLOAD))
CALLS = frozenset({"recv_into", "recv", "recvmsg", "send", "sendmsg", "sendall"})


async def thousand(bookie: InProcessBookie) -> None:
    client = await bookie.client()
    for group in range(GROUPS):
        frames = [raw.add_frame(1, group * EACH + number, PAYLOAD) for number in range(EACH)]
        await asyncio.to_thread(client.send, b"".join(frames))
        for _ in frames:
            body = await asyncio.to_thread(client.frame)
            assert int.from_bytes(body[4:8], "big") == raw.EOK


def test_system_calls_of_the_front_end(tmp_path: Path) -> None:
    """A few for each hundred adds that come together: what the sockets give at once is taken at once."""
    found: Counter[str] = Counter()

    def count(_frame: FrameType, event: str, what: object) -> None:
        name = getattr(what, "__name__", "")
        if event == "c_call" and name in CALLS and threading.current_thread().name == "frontend":
            found[name] += 1

    async def told() -> None:
        async with serving(tmp_path) as bookie:
            found.clear()
            await thousand(bookie)

    threading.setprofile(count)
    try:
        asyncio.run(told())
    finally:
        threading.setprofile(None)
    assert 3 * GROUPS <= sum(found.values()) <= 12 * GROUPS, found


def test_copies_of_each_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two: from where the socket put it into a slot, and from there, with the checksum, to where the log is written
    from. What a receive cut in the middle is copied once more.
    """
    copied = 0
    real = memory.copy

    def copy(read_buffer: memory.Buffer, at: int, data: memory.Data, start: int, end: int) -> None:
        nonlocal copied
        copied += end - start
        real(read_buffer, at, data, start, end)

    async def told() -> None:
        nonlocal copied
        async with serving(tmp_path) as bookie:
            monkeypatch.setattr(memory, "copy", copy)
            await thousand(bookie)

    asyncio.run(told())
    assert 1.9 <= copied / (GROUPS * EACH * ADD_BYTES) <= 2.3
