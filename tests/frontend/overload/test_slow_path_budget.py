"""Memory for clients is bounded: those that ask for much and take nothing, and what the others see meanwhile."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import psutil

from bkbox.base.limits import FRONTEND_BUFFERED_BYTES_MAX
from bkbox.ipc.slots import SLOT_BYTES, SLOT_COUNT
from tests.harness import raw
from tests.harness.fixtures import MakeBookie
from tests.harness.raw import RawClient, read_frame
from tests.harness.raw3 import EOK, RawClient3
from tests.harness.waiting import wait_for

ENTRY_BYTES = 4 << 20
ASKED = 16  # times by each connection
SLACK_BYTES = 2 * SLOT_COUNT * SLOT_BYTES
"""Beside what is held: the slots of shared memory on their way."""


def test_clients_that_take_nothing_cannot_use_up_the_memory(make_bookie: MakeBookie) -> None:
    bookie = make_bookie(disks=1, frontends=1).start()
    with RawClient(bookie.port) as writer:
        for entry in range(2):
            assert writer.add(1, entry, bytes(ENTRY_BYTES)) == raw.EOK
    [frontend] = bookie.children("frontend")
    before = frontend.memory_info().rss
    connections = 32 * FRONTEND_BUFFERED_BYTES_MAX // (ASKED * ENTRY_BYTES)
    with ExitStack() as greedy:
        for number in range(connections):
            client = greedy.enter_context(socket.create_connection(("127.0.0.1", bookie.port)))
            client.sendall(b"".join(read_frame(1, (number + i) % 2) for i in range(ASKED)))
        with RawClient(bookie.port) as old, RawClient3(bookie.port) as new:
            much = before + FRONTEND_BUFFERED_BYTES_MAX // 2
            wait_for(lambda: _most_memory(frontend) > much, "they hold much", pause=0.0)
            assert old.add(2, 0, b"x") == raw.EOK, "adds need no room"
            # Nobody who takes what is theirs waits for long, although those that take nothing would stay.
            wait_for(lambda: old.add(2, 0, b"x") == raw.EOK, "room again")
            wait_for(lambda: new.read3(1, 0).status == EOK, "reads, too")
        assert _most_memory(frontend) < before + FRONTEND_BUFFERED_BYTES_MAX + SLACK_BYTES
    with RawClient(bookie.port) as after:
        wait_for(lambda: after.add(2, 0, b"x") == raw.EOK, "room again")
        assert after.read(1, 0).code == raw.EOK


def _most_memory(process: psutil.Process) -> int:
    """The largest resident set that the process has had, in bytes."""
    with open(f"/proc/{process.pid}/status") as status:
        [line] = (line for line in status if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
