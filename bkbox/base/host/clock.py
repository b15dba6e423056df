"""The synchronisation of this host's clock. Source: adjtimex(2)."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass

_TIMEX_BYTES = 208
_STATUS = struct.Struct("@Illlli")
"""The first fields of struct timex: modes, offset, freq, maxerror, esterror, status."""
_UNSYNCHRONISED = 0x40


@dataclass(frozen=True, slots=True)
class Clock:
    """``synchronised``: by NTP, PTP or the like, as the kernel reports; ``error_max_s``: its
    largest possible error.
    """

    synchronised: bool
    error_max_s: float


def clock() -> Clock | None:
    """The kernel's state of the clock; None if this process may not read it."""
    buffer = ctypes.create_string_buffer(_TIMEX_BYTES)  # modes 0: asks, and changes nothing
    if ctypes.CDLL(None).adjtimex(buffer) < 0:
        return None
    _, _, _, error_max_us, _, status = _STATUS.unpack_from(buffer)
    return Clock(not status & _UNSYNCHRONISED, error_max_us / 1e6)
