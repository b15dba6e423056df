"""The repair worker while there is something to repair: from the supervisor's orders to the runner's work.

It is a client of its own bookie and of the others, and asks the disk workers for lists, checks and the end of limbo
over channels of their own.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import time
from collections.abc import Sequence

from bkbox.client.client import Client
from bkbox.client.options import ClientOptions
from bkbox.errors import BkboxError, ConfigError
from bkbox.ipc import messages
from bkbox.ipc.asyncchannel import AsyncChannel
from bkbox.metadata import connect
from bkbox.metadata.base import MetadataStore
from bkbox.repair.progress import Progress
from bkbox.repair.runner import Runner
from bkbox.repair.waiting import Order

log = logging.getLogger(__name__)

_REPORT_EVERY_S = 0.5
_RECONNECT_S = 1.0


class RepairProcess:
    """Phase two for the disks it is given; ``orders`` have come already."""

    def __init__(self, orders: Sequence[Order]) -> None:
        self._finished = asyncio.Event()
        self._orders: asyncio.Queue[Order] = asyncio.Queue()
        for order in orders:
            self._orders.put_nowait(order)
        self._control: AsyncChannel | None = None
        self._began = time.monotonic()

    async def run(self, control: socket.socket) -> None:
        """Until the supervisor says stop or is gone."""
        self._control = AsyncChannel(control, on_message=self._take, on_close=self._finished.set)
        work = asyncio.ensure_future(self._work())
        finished = asyncio.ensure_future(self._finished.wait())
        await asyncio.wait((work, finished), return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
        work.cancel()
        finished.cancel()
        await asyncio.gather(work, finished, return_exceptions=True)

    def _take(self, message: messages.Message, fds: list[int]) -> None:
        if isinstance(message, messages.Stop):
            self._finished.set()
        else:
            self._orders.put_nowait((message, fds))

    async def _work(self) -> None:
        order, _fds = await self._orders.get()
        assert isinstance(order, messages.OpenRepair)
        rng = random.Random()  # noqa: S311 jitter only
        async with (
            await self._connect(order) as store,
            _client(store, order, rng) as client,
        ):
            runner = Runner(order, store, client, self._report, rng)
            ticker = asyncio.ensure_future(self._tick(runner))
            try:
                while True:
                    _message, fds = await self._orders.get()
                    disk = AsyncChannel(socket.socket(fileno=fds[0]))
                    try:
                        await runner.serve_disk(disk)
                    except BkboxError as error:
                        log.warning("a disk could not be asked for its limbo ledgers: %s", error)
            finally:
                ticker.cancel()
                await runner.close()

    async def _connect(self, order: messages.OpenRepair) -> MetadataStore:
        while True:
            try:
                return await connect(order.metadata, order.metadata_wait_s)
            except BkboxError as error:
                log.warning("repair waits for the metadata store: %s", error)
                await asyncio.sleep(_RECONNECT_S)

    async def _tick(self, runner: Runner) -> None:
        while True:
            await asyncio.sleep(_REPORT_EVERY_S)
            self._report(runner.progress)

    def _report(self, progress: Progress) -> None:
        assert self._control is not None
        self._control.send(
            messages.RepairProgress(values=progress.values(time.monotonic() - self._began))
        )


def _client(store: MetadataStore, order: messages.OpenRepair, rng: random.Random) -> Client:
    """A recovery may need other bookies. Without racks it chooses worse; without a client nothing is repaired."""
    try:
        options = ClientOptions(
            topology_script=order.topology_script or None, rack_map=order.rack_map or None
        )
        return Client(store, options, rng)
    except ConfigError as error:
        log.error("repair goes on without racks: %s", error)
        return Client(store, ClientOptions(), rng)
