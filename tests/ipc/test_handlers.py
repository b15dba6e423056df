"""Every control message that a process gets has a handler, in the simulator's worker as in the real one."""

from __future__ import annotations

import importlib
import os
import pkgutil
import random
import subprocess
import sys
from collections.abc import Set
from pathlib import Path
from unittest.mock import Mock

import pytest

from bkbox.errors import BugError
from bkbox.frontend.server import Frontend
from bkbox.ipc import messages
from bkbox.ipc.channel import Channel, pair
from bkbox.ipc.handlers import Handlers
from bkbox.ipc.messages.disk import AttachFrontend, AttachRepair, ListLedgers
from bkbox.ipc.messages.frontend import AttachDisk
from bkbox.ipc.messages.message import Done, Message, Refused
from bkbox.ipc.messages.process import Settings, Stop
from bkbox.ipc.messages.repair import OpenRepair
from bkbox.repair.process import RepairProcess
from bkbox.storage.disk.format_disk import format_disk
from bkbox.storage.files import RealFiles
from bkbox.worker.loop import Worker
from proof.sim.world.worker import Worker as SimWorker
from tests.storage.bench import IDENTITY
from tests.worker.test_loop import order_for

for module in pkgutil.iter_modules(messages.__path__, f"{messages.__name__}."):
    importlib.import_module(module.name)
ALL = Message.__subclasses__()
NOT_SIMULATED = {AttachFrontend, AttachRepair, Settings}
"""The simulator links its processes by objects, and no configuration changes in it."""


def sent_to(process: str) -> set[type[Message]]:
    return {kind for kind in ALL if process in kind.recipients}


def types_of(process: object) -> Set[type[Message]]:
    handlers = vars(process)["_handlers"]
    assert isinstance(handlers, Handlers)
    return handlers.types


def test_recipients_are_processes() -> None:
    known = {"supervisor", "worker", "frontend", "repair"}
    assert set().union(*(kind.recipients for kind in ALL)) == known


ROLES = {
    "supervisor": "bkbox.supervisor.supervisor",
    "worker": "bkbox.worker.loop",
    "frontend": "bkbox.frontend.server",
    "repair": "bkbox.repair.process",
}


@pytest.mark.parametrize("role", ROLES)
def test_a_process_has_loaded_every_message_that_it_gets(role: str) -> None:
    loaded = f"import {ROLES[role]}; from bkbox.ipc.messages import message; print(*message._KINDS)"
    done = subprocess.run(
        [sys.executable, "-c", loaded], capture_output=True, text=True, check=True
    )
    assert {kind.__name__ for kind in sent_to(role)} - set(done.stdout.split()) == set()


def test_a_worker_handles_every_message_that_it_gets(tmp_path: Path) -> None:
    format_disk(RealFiles(), tmp_path / "disk", IDENTITY)
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    ours, theirs = pair()
    with ours, theirs:
        worker = Worker(theirs)
        handlers: Handlers = vars(worker)["_handlers"]
        assert ListLedgers not in types_of(worker), "no disk, no calls to it"
        handlers.handle(order_for(tmp_path / "disk"), [lock])
        assert types_of(worker) == sent_to("worker")

        of_a_disk = Handlers()
        vars(worker)["_disk"].register(of_a_disk)
        process = Mock(scheduler=Mock(rng=random.Random(0)))
        simulated = SimWorker(process, "a:1", *[Mock()] * 3, (1.0, 1.0), 1.0, Mock())
        assert types_of(simulated) | of_a_disk.types == sent_to("worker") - NOT_SIMULATED
        handlers.handle(Stop())


def test_a_front_end_handles_every_message_that_it_gets() -> None:
    ours, theirs = pair()
    with ours, theirs:
        frontend = Frontend(theirs)
        assert types_of(frontend) == sent_to("frontend")
        Channel(ours).send(Stop())
        frontend.run()


def test_a_repair_worker_handles_every_message_that_it_gets() -> None:
    process = RepairProcess([])
    process._register(Mock(), Mock(), Mock())
    first = {OpenRepair}
    assert types_of(process) | first == sent_to("repair")


def test_a_message_without_a_handler_is_a_bug() -> None:
    with pytest.raises(BugError, match="ListLedgers"):
        Handlers().handle(ListLedgers())
    reply = Handlers().handle(ListLedgers(call=7))
    assert isinstance(reply, Refused)
    assert (reply.call, reply.error) == (7, "BugError")


def test_a_call_has_a_reply_and_another_message_has_none() -> None:
    handlers = Handlers()
    handlers.on(Stop, lambda _order: None)
    assert handlers.handle(Stop()) is None
    assert handlers.handle(Stop(call=3)) == Done(call=3)


def test_descriptors_are_closed_whatever_happens() -> None:
    def take(_order: AttachDisk, fd: int) -> None:
        taken.append(os.dup(fd))

    taken: list[int] = []
    handlers = Handlers()
    handlers.on_fd(AttachDisk, take)
    handlers.on(Stop, lambda _order: None)
    for message in (AttachDisk(disk=""), Stop(), ListLedgers(call=1)):
        reader, writer = os.pipe()
        handlers.handle(message, [writer])
        for fd in taken:
            os.close(fd)
        taken.clear()
        assert os.read(reader, 1) == b"", "the writer is closed"
        os.close(reader)
