"""What ``bkbox bench client`` measures, and what comes of it."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol, TypeVar

from bkbox.bench.load import Measured
from bkbox.native.histogram import Histogram

Through = Literal["ledger", "log", "sync"]
"""What is appended to and read: a ledger or a log of the asyncio client, or a ledger of the client without an event
loop."""


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
    through: Through = "ledger"


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


def result_of(
    plan: ClientPlan, appends: Measured, reads: Measured, append_cpu_s: float, read_cpu_s: float
) -> ClientResult:
    """The result, with the processor time of both phases per request."""
    return ClientResult(
        plan,
        appends,
        reads,
        append_cpu_s * 1e6 / max(appends.requests, 1),
        read_cpu_s * 1e6 / max(reads.requests, 1),
    )


class Appended(Protocol):
    """The future of an append, of either client."""

    def done(self) -> bool: ...

    def result(self) -> object: ...


Appends = TypeVar("Appends", bound=Appended)


def record_done(pending: deque[tuple[int, Appends]], now_ns: int, latency: Histogram) -> None:
    """Take the appends that are done off the front of ``pending``, and record their latencies in nanoseconds.
    ``pending``: when each was begun, and its future. Raises what an append raises."""
    while pending and pending[0][1].done():
        since_ns, future = pending.popleft()
        future.result()
        latency.record(now_ns - since_ns)


def payload_of(size: int) -> bytes:
    """Bytes that do not compress to nothing."""
    return bytes(number * 31 + 7 & 0xFF for number in range(size))
