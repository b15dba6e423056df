"""The loop of a worker: what it does in the turn in which it is told to stop."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from bkbox.ipc.channel import Channel
from bkbox.ipc.messages.disk import DiskOpened, OpenDisk
from bkbox.ipc.messages.message import Message
from bkbox.ipc.messages.process import Stop, Stopped
from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.disk.format_disk import format_disk
from bkbox.storage.files import RealFiles
from bkbox.worker import loop
from bkbox.worker.commit_groups import CommitGroups
from bkbox.worker.control_handlers import stopped
from bkbox.worker.loop import Worker
from tests.storage.bench import IDENTITY


@pytest.fixture
def ends() -> Iterator[tuple[Channel, socket.socket]]:
    """The supervisor's end of a control channel, and the worker's."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    yield Channel(ours), theirs
    ours.close()
    theirs.close()


def order_for(disk: Path) -> Message:
    return OpenDisk(
        call=1,
        path=str(disk),
        journal="",
        ack_after="sync",
        host_crash=False,
        is_clean=True,
        generation=1,
        seen=[0, 0, 0],
        segment_bytes_max=1 << 20,
        checkpoint_bytes=1 << 20,
        slow_operation_ms=0,
        disk_usage_max=1.0,
        disk_reserve_bytes=0,
    )


def test_a_closed_disk_does_not_come_to_rest(
    tmp_path: Path, ends: tuple[Channel, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the disk would have come to rest while it was closed, the worker ended with an error instead."""
    now_us = 1

    def stopped_late(store: DiskStore | None, groups: CommitGroups | None) -> Stopped:
        nonlocal now_us
        answer = stopped(store, groups)
        now_us += 60_000_000
        return answer

    monkeypatch.setattr(loop, "_ticks_us", lambda: now_us)
    monkeypatch.setattr(loop, "stopped", stopped_late)
    format_disk(RealFiles(), tmp_path / "disk", IDENTITY)
    supervisor, control = ends
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    supervisor.send(order_for(tmp_path / "disk"), [lock])
    supervisor.send(Stop(call=2))
    Worker(control).run()
    os.close(lock)
    opened, _ = supervisor.receive()
    assert isinstance(opened, DiskOpened)
    end, _ = supervisor.receive()
    assert isinstance(end, Stopped)
    assert end.clean
