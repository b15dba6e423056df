"""``bkbox bench client``: the rate at which one program appends to a ledger and reads it back, digests included.

One ledger, which is deleted at the end, one event loop, a closed loop of ``window`` entries. An append is timed from
the call until its ack quorum has acknowledged it. Reads go over the ledger again and again, from its bookies' caches.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from dataclasses import asdict, dataclass
from typing import Any, Literal

from bkbox import client as clients
from bkbox.bench.load import Measured, of_histogram
from bkbox.client import Client, LedgerWriter
from bkbox.errors import WindowFullError
from bkbox.native.histogram import Histogram

_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class ClientPlan:
    """Ensemble, write and ack quorum; ``window`` entries in flight, each of ``size`` bytes of
    payload. Durations of the append phase and of the read phase."""

    ensemble: int
    write_quorum: int
    ack_quorum: int
    window: int
    size: int
    seconds: float
    warmup_s: float
    protocol: Literal["v2", "v3"] = "v2"


@dataclass(frozen=True, slots=True)
class ClientResult:
    """``reads`` have no latencies: entries are asked for ahead. ``client_cpu_s_per_million`` is what this
    program used per million appends, and ``read_cpu_s_per_million`` per million reads."""

    plan: ClientPlan
    appends: Measured
    reads: Measured
    client_cpu_s_per_million: float
    read_cpu_s_per_million: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


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


async def _run(metadata: str, plan: ClientPlan) -> ClientResult:
    async with clients.connect(metadata, protocol=plan.protocol) as client:
        writer = await client.create_ledger(plan.ensemble, plan.write_quorum, plan.ack_quorum)
        try:
            async with writer:
                await _append(writer, plan, plan.warmup_s)
                begin = time.process_time()
                appends = await _append(writer, plan, plan.seconds)
                append_cpu_s = time.process_time() - begin
            await _read(client, writer.ledger_id, plan, plan.warmup_s)
            begin = time.process_time()
            reads = await _read(client, writer.ledger_id, plan, plan.seconds)
            read_cpu_s = time.process_time() - begin
        finally:
            await client.delete_ledger(writer.ledger_id)
    return ClientResult(
        plan,
        appends,
        reads,
        append_cpu_s * 1e6 / max(appends.requests, 1),
        read_cpu_s * 1e6 / max(reads.requests, 1),
    )


async def _append(writer: LedgerWriter, plan: ClientPlan, seconds: float) -> Measured:
    payload = bytes(number * 31 + 7 & 0xFF for number in range(plan.size))
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
        while pending and pending[0][1].done():
            since, future = pending.popleft()
            future.result()
            latency.record(now - since)
    took = (clock() - start) / _S
    for _, future in pending:
        await future
    return of_histogram(latency, took, plan.size, latency.count)


async def _read(client: Client, ledger: int, plan: ClientPlan, seconds: float) -> Measured:
    latency = Histogram()
    clock = time.perf_counter_ns
    count = 0
    reader = await client.open_ledger(ledger)
    start = clock()
    until = start + int(seconds * _S)
    while clock() < until:
        async with aclosing(reader.read()) as entries:
            async for entry in entries:
                count += 1
                if count & 0xFF == 0 and clock() >= until:
                    break
                assert len(entry.payload) == plan.size
    return of_histogram(latency, (clock() - start) / _S, plan.size, count)
