"""Formats numbers and times for operators. A state is a sign and a word, never a colour alone."""

from __future__ import annotations

from enum import Enum

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


class Level(Enum):
    """Severity: a sign that every terminal has, and the matching style of the theme."""

    GOOD = "+", "success"
    BUSY = "~", "primary"
    WARNING = "!", "warning"
    BAD = "X", "error"
    UNKNOWN = "?", "secondary"

    @property
    def sign(self) -> str:
        return self.value[0]

    @property
    def style(self) -> str:
        """The name of the theme's variable."""
        return self.value[1]


def size(count: float) -> str:
    """Formats bytes, in about three digits: ``1.5 GiB``."""
    for unit in _UNITS:
        if count < 1024 or unit == _UNITS[-1]:
            break
        count /= 1024
    return f"{count:.0f} {unit}" if count >= 100 or unit == "B" else f"{count:.1f} {unit}"


def amount(count: float) -> str:
    """Formats a count, short: ``12,345``, ``1.2 M``."""
    if count < 100_000:
        return f"{count:,.0f}"
    return f"{count / 1e6:.1f} M" if count < 1e9 else f"{count / 1e9:.1f} G"


def span(seconds: float | None) -> str:
    """Formats a duration: ``45 s``, ``3 min``, ``2 h 5 min``; ``unknown`` for None."""
    if seconds is None:
        return "unknown"
    whole = int(seconds + 0.5)
    if whole < 100:
        return f"{whole} s"
    minutes = (whole + 30) // 60
    if minutes < 100:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"


def micros(us: float) -> str:
    """Formats a latency: ``250 us``, ``1.5 ms``, ``2.0 s``."""
    if us < 1_000:
        return f"{us:.0f} us"
    return f"{us / 1e3:.1f} ms" if us < 1e6 else f"{us / 1e6:.1f} s"
