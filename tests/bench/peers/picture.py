"""The ratios as bars, in an SVG that needs nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from tests.bench.peers.report import Compared, Ratios

_WIDTH = 1180
_ROW = 28
_TOP = 96
_BAR = 14
_NAMES = 300
_REACHED, _MISSED = "#2b7a4b", "#c8682a"


class _Panel(NamedTuple):
    """A logarithmic scale from ``least`` to ``most``; room for the figure is right of it."""

    title: str
    left: int
    width: int
    least: float
    most: float

    def x(self, ratio: float) -> float:
        bounded = min(max(ratio, self.least), self.most)
        share = math.log(bounded / self.least) / math.log(self.most / self.least)
        return self.left + share * self.width


_RATES = _Panel("Rates, and costs saved: times as good", 310, 330, 0.2, 20)
_TAILS = _Panel("p99.9 latency: times as short", 760, 300, 0.2, 50)
_TICKS = (0.2, 0.5, 1, 2, 5, 10, 20, 50)


class _Bar(NamedTuple):
    """Java : bkbox where less is better, so that longer is better throughout."""

    median: float
    least: float
    most: float
    target: float

    @property
    def is_reached(self) -> bool:
        return self.median >= self.target


def draw(compared: Sequence[Compared]) -> str:
    """The lines that have a target in one direction."""
    rows = [
        each for each in compared if (each.line.at_least is None) != (each.line.at_most is None)
    ]
    height = _TOP + _ROW * len(rows) + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" font-family="system-ui, sans-serif" font-size="13">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        '<text x="20" y="28" font-size="18" font-weight="600" fill="#1a1a1a">'
        "bkbox beside Apache BookKeeper 4.18.0</text>",
        '<text x="20" y="48" fill="#555555">Bar: median of the rounds; thin line: least and most; '
        "black mark: target; green where it is reached. Logarithmic.</text>",
    ]
    for panel in (_RATES, _TAILS):
        parts += _scale(panel, height)
    for number, each in enumerate(rows):
        top = _TOP + number * _ROW + 6
        parts.append(
            f'<text x="{_NAMES}" y="{top + 12}" text-anchor="end" fill="#1a1a1a">'
            f"{escape(each.line.text)}</text>"
        )
        line = each.line
        parts += _bar(_RATES, _better(each.ratios, line.at_least, line.at_most), top)
        if each.tail is not None:
            parts += _bar(_TAILS, _better(each.tail, None, line.tail_at_most), top)
    parts.append("</svg>\n")
    return "\n".join(parts)


def _better(ratios: Ratios, at_least: float | None, at_most: float | None) -> _Bar:
    if at_least is not None:
        return _Bar(ratios.median, ratios.least, ratios.most, at_least)
    least, most = 1 / max(ratios.most, 1e-9), 1 / max(ratios.least, 1e-9)
    return _Bar(1 / max(ratios.median, 1e-9), least, most, 1 / (at_most or 1))


def _scale(panel: _Panel, height: int) -> list[str]:
    parts = [
        f'<text x="{panel.left}" y="{_TOP - 28}" font-weight="600" fill="#1a1a1a">'
        f"{panel.title}</text>"
    ]
    for value in _TICKS:
        if panel.least <= value <= panel.most:
            x = panel.x(value)
            colour = "#888888" if value == 1 else "#e4e4e4"
            parts += [
                f'<line x1="{x:.1f}" y1="{_TOP - 4}" x2="{x:.1f}" y2="{height - 20}" '
                f'stroke="{colour}"/>',
                f'<text x="{x:.1f}" y="{_TOP - 9}" text-anchor="middle" fill="#777777" '
                f'font-size="11">{value:g}</text>',
            ]
    return parts


def _bar(panel: _Panel, bar: _Bar, top: int) -> list[str]:
    colour = _REACHED if bar.is_reached else _MISSED
    left, right = sorted((panel.x(1), panel.x(bar.median)))
    middle, target = top + _BAR / 2, panel.x(bar.target)
    return [
        f'<rect x="{left:.1f}" y="{top}" width="{max(right - left, 1):.1f}" height="{_BAR}" '
        f'fill="{colour}"/>',
        f'<line x1="{panel.x(bar.least):.1f}" y1="{middle}" x2="{panel.x(bar.most):.1f}" '
        f'y2="{middle}" stroke="#1a1a1a" stroke-width="1.5"/>',
        f'<line x1="{target:.1f}" y1="{top - 4}" x2="{target:.1f}" y2="{top + _BAR + 4}" '
        'stroke="#000000" stroke-width="2.5"/>',
        f'<text x="{panel.left + panel.width + 12}" y="{top + 12}" fill="{colour}" '
        f'font-weight="600">{bar.median:.2f} (≥ {bar.target:.2g})</text>',
    ]
