"""Autorecovery and decommission outside of a bookie: the same code, as a process or a command of its own."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bkbox.client.client import Client
from bkbox.client.options import ClientOptions
from bkbox.errors import JobCancelledError
from bkbox.metadata import connect
from bkbox.metadata.base import MetadataStore
from bkbox.repair.job_run import JobRun
from bkbox.repair.rate_limits import RateLimits
from bkbox.repair.replication.auditor import Auditor, AuditorSettings
from bkbox.repair.replication.replication_worker import ReplicationSettings, ReplicationWorker

log = logging.getLogger(__name__)

METADATA_CALLS_PER_SECOND = 1_000

_STOPPING = (signal.SIGTERM, signal.SIGINT)


def wall_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def host_name() -> str:
    """The host name that this process writes into its locks."""
    return socket.gethostname() or "localhost"


@dataclass(frozen=True, slots=True)
class Alone:
    """The context for repair code that does not run as a job of a bookie."""

    store: MetadataStore
    client: Client
    rng: random.Random

    def work(self, network_bytes_per_second: int) -> JobRun:
        """A ``Work`` with a pacer of its own (0: no bound). ``stop_on_signals`` cancels it."""
        pacer = RateLimits(0, network_bytes_per_second, METADATA_CALLS_PER_SECOND)
        return JobRun(os.getpid(), pacer, asyncio.Lock(), time.monotonic)


async def in_cluster(
    uri: str, options: ClientOptions, do: Callable[[Alone], Awaitable[None]]
) -> None:
    """Connect, run ``do``, disconnect. Raises as ``connect`` and ``do``."""
    rng = random.Random()  # noqa: S311 jitter and placement
    async with await connect(uri) as store, Client(store, options, rng) as client:
        await do(Alone(store, client, rng))


def stop_on_signals(*works: JobRun) -> None:
    """Cancel these on SIGTERM and SIGINT; each ends with its locks released."""

    def stop() -> None:
        for work in works:
            work.cancel()

    for number in _STOPPING:
        asyncio.get_running_loop().add_signal_handler(number, stop)


async def autorecovery(
    alone: Alone,
    name: str,
    auditing: AuditorSettings,
    replicating: ReplicationSettings,
    network_bytes_per_second: int,
    ready: Callable[[], None],
) -> None:
    """Run auditor and replication worker until a signal. Raises the error that ends either of them."""
    audit, replication = alone.work(0), alone.work(network_bytes_per_second)
    stop_on_signals(audit, replication)
    auditor = Auditor(
        audit,
        alone.store,
        alone.client,
        auditing,
        name=name,
        rng=alone.rng,
        wall_ms=wall_ms,
        monotonic_s=time.monotonic,
    )
    worker = ReplicationWorker(
        replication,
        alone.store,
        alone.client,
        replicating,
        me=None,
        host=host_name(),
        rng=alone.rng,
        wall_ms=wall_ms,
        monotonic_s=time.monotonic,
    )
    tasks = [asyncio.ensure_future(auditor.run()), asyncio.ensure_future(worker.run())]
    ready()
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        audit.cancel()
        replication.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    for end in ends:
        if isinstance(end, BaseException) and not isinstance(end, JobCancelledError):
            raise end
