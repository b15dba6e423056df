"""Options of a log's writer."""

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
    """Quorum sizes of each ledger, as in Client.create_ledger, here and in the next two; None: the defaults there."""

    write_quorum: int | None = None

    ack_quorum: int | None = None

    digest_type: DigestType = DigestType.CRC32C

    password: bytes = b""
    """The password of the ledgers. Every process that can read the metadata store knows it."""

    roll_bytes: int = 256 << 20
    """Size, in bytes, from which a ledger is followed by the next one."""

    roll_s: float = 3600.0
    """Age, in seconds, from which a ledger that is not empty is followed by the next one."""

    batch_bytes: int = 128 << 10
    """Records are batched into one entry up to this size, in bytes. A larger record has its own entry."""

    linger_s: float = 0.0
    """How long a record may wait for others to share its entry. With 0, an entry holds the records of one event-loop
    turn, and those that wait for space.
    """

    compression: Compression = Compression.NONE
    """Compression of entries, used where it makes them smaller."""

    window_bytes: int = 8 << 20
    """Unacknowledged records, in bytes, from which ``append`` waits."""

    idle_lac_s: float = 0.05
    """Time after the last record at which readers are told of it, if no other follows. 0: never."""

    clock_ms: Callable[[], int] = wall_clock_ms
    """The clock that dates records appended without a time."""

    def __post_init__(self) -> None:
        problems = option_problems(self, _ABOVE_0)
        if problems:
            raise ConfigError(problems)
        check(self.compression)


_ABOVE_0 = ("roll_bytes", "roll_s", "batch_bytes", "window_bytes")
