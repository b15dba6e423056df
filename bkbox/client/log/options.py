"""How a log is written."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from bkbox.client.arguments import option_problems
from bkbox.client.log.compression import Compression, check
from bkbox.errors import ConfigError
from bkbox.wire.metadata.ledger import DigestType


def wall_clock_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Options of a log's writer; every ``_s`` is in seconds. Raises ConfigError, CompressionError."""

    ensemble_size: int = 3
    """Of each ledger, as in Client.create_ledger, and so the next two; None: the defaults there."""

    write_quorum: int | None = None

    ack_quorum: int | None = None

    digest_type: DigestType = DigestType.CRC32C

    password: bytes = b""
    """Of the ledgers. Whoever reads the metadata store knows it."""

    roll_bytes: int = 256 << 20
    """A ledger that holds so much is followed by the next one."""

    roll_s: float = 3600.0
    """And one that is so old and holds anything."""

    batch_bytes: int = 128 << 10
    """Records go into one entry up to this size. One that is larger has an entry of its own."""

    linger_s: float = 0.0
    """How long a record may wait for others to share its entry; without, it is those of one turn of the event loop, and
    those that wait for room."""

    compression: Compression = Compression.NONE
    """Of entries, where that makes them smaller."""

    window_bytes: int = 8 << 20
    """What is appended and not acknowledged before ``append`` waits, in bytes of records."""

    idle_lac_s: float = 0.05
    """So long after the last record its readers are told of it, where no other follows. 0: never."""

    clock_ms: Callable[[], int] = wall_clock_ms
    """Dates records that come without a time."""

    def __post_init__(self) -> None:
        problems = option_problems(self, _ABOVE_0)
        if problems:
            raise ConfigError(problems)
        check(self.compression)


_ABOVE_0 = ("roll_bytes", "roll_s", "batch_bytes", "window_bytes")
