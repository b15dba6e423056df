"""What ``bkbox bench client`` measures, and what comes of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from bkbox.bench.load import Measured

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


def payload_of(size: int) -> bytes:
    """Bytes that do not compress to nothing."""
    return bytes(number * 31 + 7 & 0xFF for number in range(size))
