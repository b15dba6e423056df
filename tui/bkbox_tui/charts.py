"""Bars and trends as text. Pure; each has exactly the width that is asked for."""

from __future__ import annotations

from collections.abc import Sequence

_EIGHTHS = " ▁▂▃▄▅▆▇█"


def bar(share: float | None, width: int) -> str:
    """A bar of ``width`` characters; a neutral one if the share is not known."""
    if share is None:
        return "·" * width
    full = round(min(1.0, max(0.0, share)) * width)
    return "█" * full + "░" * (width - full)


def trend(
    points: Sequence[float], width: int, height: int = 1, most: float | None = None
) -> list[str]:
    """The last ``width`` points as columns, the newest at the right, the top line first. The scale starts at 0 and
    ends at ``most``, the largest of them (``top``) by default; anything above 0 shows."""
    shown = list(points)[-width:] if width > 0 else []
    most = max(shown, default=0.0) if most is None else most
    levels = [
        0 if most <= 0 or each <= 0 else max(1, round(each / most * height * 8)) for each in shown
    ]
    lines = []
    for line in range(height - 1, -1, -1):
        cells = (_EIGHTHS[min(8, max(0, level - line * 8))] for level in levels)
        lines.append("".join(cells).rjust(width))
    return lines


def top(points: Sequence[float], width: int) -> float:
    """The upper end of the trend's scale."""
    return max(list(points)[-width:] if width > 0 else [], default=0.0)
