"""The repair worker once there is a job or a quota: passes the supervisor's orders to the scheduler that runs jobs.

It is a client of its own bookie and of the others. It asks the disk workers for lists, checks and small pieces of
work over channels of their own.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import time
from collections.abc import Sequence
from typing import Any

from bkbox.base import logs
from bkbox.base.commandline import set_origin
from bkbox.base.ids import BookieId
from bkbox.client.client import Client
from bkbox.client.options import ClientOptions
from bkbox.errors import BkboxError, ConfigError
from bkbox.ipc.async_channel import AsyncChannel
from bkbox.ipc.handlers import Handlers
from bkbox.ipc.messages.frontend import AttachDisk
from bkbox.ipc.messages.message import Message
from bkbox.ipc.messages.process import GetStats, Settings, Stats, Stop
from bkbox.ipc.messages.repair import ControlJob, JobReport, OpenRepair, StartJob
from bkbox.metadata import connect
from bkbox.metadata.base import MetadataStore
from bkbox.repair.context import Environment
from bkbox.repair.idle_loop import Order
from bkbox.repair.jobs import JOBS
from bkbox.repair.scheduler import Scheduler
from bkbox.repair.space.quotas import QuotaWatch

log = logging.getLogger(__name__)

_RECONNECT_S = 1.0


class RepairProcess:
    """The jobs of a bookie; ``orders`` are those that arrived before it started."""

    def __init__(self, orders: Sequence[Order]) -> None:
        self._finished = asyncio.Event()
        self._handlers = Handlers()
        self._handlers.on(Stop, lambda _order: self._finished.set())
        self._handlers.on(GetStats, lambda _call: Stats(values={}))
        self._orders: asyncio.Queue[Order] = asyncio.Queue()
        for order in orders:
            self._orders.put_nowait(order)
        self._control: AsyncChannel | None = None

    async def run(self, control: socket.socket) -> None:
        """Serve until the supervisor says stop or is gone."""
        self._control = AsyncChannel(control, on_message=self._receive, on_close=self._finished.set)
        work = asyncio.ensure_future(self._work())
        finished = asyncio.ensure_future(self._finished.wait())
        await asyncio.wait((work, finished), return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
        work.cancel()
        finished.cancel()
        await asyncio.gather(work, finished, return_exceptions=True)

    def _receive(self, message: Message, fds: list[int]) -> None:
        """Handle at once what needs no scheduler; GetStats checks that this loop is alive. The rest waits for it."""
        if not isinstance(message, Stop | GetStats):
            self._orders.put_nowait((message, fds))
            return
        reply = self._handlers.handle(message, fds)
        if reply is not None and self._control is not None:
            self._control.send(reply)

    async def _work(self) -> None:
        order, _fds = await self._orders.get()
        assert isinstance(order, OpenRepair)
        set_origin(config=order.config)
        rng = random.Random()  # noqa: S311 jitter only
        async with (
            await self._connect(order) as store,
            _client(store, order, rng) as client,
        ):
            environment = Environment(
                me=BookieId(order.bookie),
                store=store,
                client=client,
                disks={},
                order=order,
                rng=rng,
                wall_ms=lambda: time.time_ns() // 1_000_000,
                monotonic_s=time.monotonic,
                supervisor=self._control,
            )
            scheduler = Scheduler(environment, JOBS, self._report)
            assert self._control is not None
            quotas = QuotaWatch(environment, self._control.send)
            self._register(environment, scheduler, quotas)
            background = [
                asyncio.ensure_future(scheduler.send_reports()),
                asyncio.ensure_future(scheduler.watch_foreground()),
                asyncio.ensure_future(self._obey()),
                asyncio.ensure_future(quotas.run()),  # after the disks whose orders have arrived
            ]
            try:
                await asyncio.gather(*background)
            finally:
                for task in background:
                    task.cancel()
                await asyncio.gather(*background, return_exceptions=True)
                await scheduler.close()

    async def _obey(self) -> None:
        while True:
            self._handlers.handle(*await self._orders.get())

    def _register(self, environment: Environment, scheduler: Scheduler, quotas: QuotaWatch) -> None:
        def attach(order: AttachDisk, fd: int) -> None:
            disk = socket.socket(fileno=os.dup(fd))
            environment.disks[order.disk] = AsyncChannel(disk)

        def apply(order: Settings) -> None:
            logs.set_level(order.values["log_level"])
            scheduler.configure(order)
            quotas.configure(order.values)

        self._handlers.on_fd(AttachDisk, attach)
        self._handlers.on(StartJob, scheduler.start)
        self._handlers.on(ControlJob, scheduler.control)
        self._handlers.on(Settings, apply)

    async def _connect(self, order: OpenRepair) -> MetadataStore:
        while True:
            try:
                return await connect(order.metadata, order.metadata_wait_s)
            except BkboxError as error:
                log.warning("repair waits for the metadata store: %s", error)
                await asyncio.sleep(_RECONNECT_S)

    def _report(self, values: dict[str, Any]) -> None:
        assert self._control is not None
        self._control.send(JobReport(values=values))


def _client(store: MetadataStore, order: OpenRepair, rng: random.Random) -> Client:
    """The client for recoveries, which may need other bookies. If racks cannot be had its choice is worse; without a
    client nothing would be repaired.
    """
    try:
        options = ClientOptions(
            topology_script=order.topology_script or None,
            rack_map=order.rack_map or None,
            **order.client,
        )
        return Client(store, options, rng)
    except ConfigError as error:
        log.error("repair goes on without racks: %s", "; ".join(error.problems))
        return Client(store, ClientOptions(**order.client), rng)
