"""The load of ``bkbox bench client`` on the asyncio client: a ledger, or a log."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from typing import Any, NamedTuple

from bkbox import client as clients
from bkbox.bench.client_plan import ClientPlan, ClientResult, payload_of, record_done, result_of
from bkbox.bench.load import Measured, of_histogram
from bkbox.client import Client, Entry, LedgerWriter
from bkbox.client.log import Log, LogOptions, LogWriter, Record
from bkbox.errors import WindowFullError
from bkbox.native.histogram import Histogram

_S = 1_000_000_000


def run(metadata: str, plan: ClientPlan) -> ClientResult:
    """Raises what the client raises."""
    return _loop_run()(_run(metadata, plan))


def _loop_run() -> Callable[[Coroutine[Any, Any, ClientResult]], ClientResult]:
    """The runner of the faster event loop if it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    run_on_it: Callable[[Coroutine[Any, Any, ClientResult]], ClientResult] = uvloop.run
    return run_on_it


_Entries = AsyncGenerator[Entry, None] | AsyncGenerator[Record, None]


class _Target(NamedTuple):
    """``read``: everything that was written, from the beginning."""

    writer: LedgerWriter | LogWriter
    read: Callable[[], Awaitable[_Entries]]


@asynccontextmanager
async def _ledger(client: Client, plan: ClientPlan) -> AsyncIterator[_Target]:
    writer = await client.create_ledger(plan.ensemble, plan.write_quorum, plan.ack_quorum)

    async def read() -> _Entries:
        return (await client.open_ledger(writer.ledger_id)).read()

    try:
        yield _Target(writer, read)
    finally:
        await client.delete_ledger(writer.ledger_id)


@asynccontextmanager
async def _log(client: Client, plan: ClientPlan) -> AsyncIterator[_Target]:
    log = Log(client, f"bench-{os.getpid()}")
    options = LogOptions(
        ensemble_size=plan.ensemble, write_quorum=plan.write_quorum, ack_quorum=plan.ack_quorum
    )

    async def read() -> _Entries:
        return log.read()

    try:
        yield _Target(await log.open_writer(options), read)
    finally:
        await log.delete()


async def _run(metadata: str, plan: ClientPlan) -> ClientResult:
    made = _log if plan.through == "log" else _ledger
    async with (
        clients.connect(metadata, protocol=plan.protocol) as client,
        made(client, plan) as target,
    ):
        async with target.writer:
            await _append(target.writer, plan, plan.warmup_s)
            begin = time.process_time()
            appends = await _append(target.writer, plan, plan.seconds)
            append_cpu_s = time.process_time() - begin
        await _read(target, plan, plan.warmup_s)
        begin = time.process_time()
        reads = await _read(target, plan, plan.seconds)
        read_cpu_s = time.process_time() - begin
    return result_of(plan, appends, reads, append_cpu_s, read_cpu_s)


async def _append(writer: LedgerWriter | LogWriter, plan: ClientPlan, seconds: float) -> Measured:
    payload = payload_of(plan.size)
    pending: deque[tuple[int, asyncio.Future[Any]]] = deque()
    latency = Histogram()
    clock = time.perf_counter_ns
    start = now = clock()
    until = start + int(seconds * _S)
    while now < until:
        while len(pending) < plan.window:
            try:
                pending.append((clock(), writer.append_nowait(payload)))
            except WindowFullError:  # some copies of acknowledged entries have no response yet
                await writer.drain()
        await pending[0][1]
        now = clock()
        record_done(pending, now, latency)
    took = (clock() - start) / _S
    for _, future in pending:
        await future
    return of_histogram(latency, took, plan.size, latency.count)


async def _read(target: _Target, plan: ClientPlan, seconds: float) -> Measured:
    latency = Histogram()
    clock = time.perf_counter_ns
    count = 0
    start = clock()
    until = start + int(seconds * _S)
    while clock() < until:
        async with aclosing(await target.read()) as entries:
            async for entry in entries:
                count += 1
                if count & 0xFF == 0 and clock() >= until:
                    break
                assert len(entry.payload) == plan.size
    return of_histogram(latency, (clock() - start) / _S, plan.size, count)
