"""The load of ``bkbox bench client`` on the client without an event loop: one thread calls, another has the loop."""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import Future

from bkbox.base.ids import EntryId
from bkbox.bench.client_plan import ClientPlan, ClientResult, payload_of, record_done, result_of
from bkbox.bench.load import Measured, of_histogram
from bkbox.client import sync
from bkbox.native.histogram import Histogram

_S = 1_000_000_000


def run(metadata: str, plan: ClientPlan) -> ClientResult:
    """Raises what the client raises."""
    with sync.connect(metadata, protocol=plan.protocol) as client:
        writer = client.create_ledger(plan.ensemble, plan.write_quorum, plan.ack_quorum)
        try:
            with writer:
                _append(writer, plan, plan.warmup_s)
                begin = time.process_time()
                appends = _append(writer, plan, plan.seconds)
                append_cpu_s = time.process_time() - begin
            _read(client, writer.ledger_id, plan, plan.warmup_s)
            begin = time.process_time()
            reads = _read(client, writer.ledger_id, plan, plan.seconds)
            read_cpu_s = time.process_time() - begin
        finally:
            client.delete_ledger(writer.ledger_id)
    return result_of(plan, appends, reads, append_cpu_s, read_cpu_s)


def _append(writer: sync.LedgerWriter, plan: ClientPlan, seconds: float) -> Measured:
    payload = payload_of(plan.size)
    pending: deque[tuple[int, Future[EntryId]]] = deque()
    latency = Histogram()
    clock = time.perf_counter_ns
    start = now = clock()
    until = start + int(seconds * _S)
    while now < until:
        while len(pending) < plan.window:
            since = clock()
            pending.append((since, writer.append_nowait(payload)))  # waits for space
        pending[0][1].result()
        now = clock()
        record_done(pending, now, latency)
    took = (clock() - start) / _S
    for _, future in pending:
        future.result()
    return of_histogram(latency, took, plan.size, latency.count)


def _read(client: sync.Client, ledger: int, plan: ClientPlan, seconds: float) -> Measured:
    latency = Histogram()
    clock = time.perf_counter_ns
    count = 0
    start = clock()
    until = start + int(seconds * _S)
    while clock() < until:
        for entry in client.open_ledger(ledger).read():
            count += 1
            if count & 0xFF == 0 and clock() >= until:
                break
            assert len(entry.payload) == plan.size
    return of_histogram(latency, (clock() - start) / _S, plan.size, count)
