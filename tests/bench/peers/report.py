"""What the rounds say: ratios with their spread, as a table, as JSON and as a picture.

``performance.json`` holds all figures, load by load. A run replaces the loads that it has measured, as a
whole; table and picture are always made of all that the file holds.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.bench.peers import picture
from tests.bench.peers.scenarios import LINES, LOADS, Line

Rounds = dict[str, list[dict[str, dict[str, float]]]]
"""By load; of each round, by subject, what was measured."""


@dataclass(frozen=True, slots=True)
class Ratios:
    """Ours : theirs, of each round, as median and extremes; and the medians of both."""

    median: float
    least: float
    most: float
    ours: float
    theirs: float
    rounds: int


@dataclass(frozen=True, slots=True)
class Compared:
    """A line, and what it came to."""

    line: Line
    ratios: Ratios
    tail: Ratios | None

    @property
    def missed(self) -> list[str]:
        """Which of the targets are not reached."""
        line, median = self.line, self.ratios.median
        found = []
        if (line.at_least is not None and median < line.at_least) or (
            line.at_most is not None and median > line.at_most
        ):
            found.append("ratio")
        if (
            self.tail is not None
            and line.tail_at_most is not None
            and self.tail.median > line.tail_at_most
        ):
            found.append("p99.9")
        return found

    @property
    def is_reached(self) -> bool | None:
        """None for a line without a target."""
        if self.line.at_least is None and self.line.at_most is None:
            return None
        return not self.missed


def compare(lines: Sequence[Line], rounds: Rounds) -> list[Compared]:
    """The lines for which there are figures."""
    found = []
    for line in lines:
        ratios = _ratios(line, line.figure, rounds)
        tail = None if line.tail is None else _ratios(line, line.tail, rounds)
        if ratios is not None:
            found.append(Compared(line, ratios, tail))
    return found


def table(compared: list[Compared]) -> str:
    """In Markdown."""
    head = (
        "| load | bkbox | against | ratio (least, most) | target | p99.9 ms | against "
        "| ratio (least, most) | target | |"
    )
    rows = [head, "|---|--:|--:|--:|--:|--:|--:|--:|--:|---|"]
    for each in compared:
        line, ratios, tail = each.line, each.ratios, each.tail
        cells = [
            f"{line.text}, against {_subject(line.theirs)}",
            _figure(line.figure, ratios.ours),
            _figure(line.figure, ratios.theirs),
            _spread(ratios),
            _target(line.at_least, line.at_most),
        ]
        if tail is None:
            cells += [""] * 4
        else:
            cells += [
                f"{tail.ours / 1000:,.2f}",
                f"{tail.theirs / 1000:,.2f}",
                _spread(tail),
                _target(None, line.tail_at_most),
            ]
        missed = f"**missed: {', '.join(each.missed)}**"
        cells.append({True: "reached", False: missed, None: ""}[each.is_reached])
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def write(docs: Path, rounds: Rounds) -> None:
    """performance.json, performance.svg, and the table between the markers of performance.md."""
    file = docs / "performance.json"
    loads = json.loads(file.read_text())["loads"] if file.exists() else {}
    for load in LOADS:
        if load.name in rounds:
            measured = {"command": load.command, "machine": machine(), "rounds": rounds[load.name]}
            loads[load.name] = measured
    known = {load.name: loads[load.name] for load in LOADS if load.name in loads}
    compared = compare(LINES, {name: each["rounds"] for name, each in known.items()})
    lines = [
        {
            **asdict(each.line),
            "ratios": asdict(each.ratios),
            "tail_ratios": None if each.tail is None else asdict(each.tail),
            "reached": each.is_reached,
        }
        for each in compared
    ]
    file.write_text(json.dumps({"lines": lines, "loads": known}, indent=1) + "\n")
    docs.joinpath("performance.svg").write_text(picture.draw(compared))
    machines = "; ".join(sorted({each["machine"] for each in known.values()}))
    least = min(len(each["rounds"]) for each in known.values())
    text = f"Medians of {least} rounds or more. {machines}.\n\n{table(compared)}"
    page = docs / "performance.md"
    page.write_text(replace_between(page.read_text(), "peers", text))


def machine() -> str:
    """What this is measured on."""
    gib = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
    return (
        f"{os.cpu_count()} cores, {gib} GiB, Linux {platform.release()}, "
        f"Python {platform.python_version()}"
    )


def replace_between(page: str, name: str, text: str) -> str:
    """The page with new text between its markers ``<!-- NAME: begin -->`` and ``end``."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    head, found, rest = page.partition(begin)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"the page has no {begin} … {end}")
    return f"{head}{begin}\n{text}\n{end}{tail}"


def _ratios(line: Line, figure: str, rounds: Rounds) -> Ratios | None:
    pairs = []
    for each in rounds.get(line.load, []):
        ours = each.get(line.ours, {}).get(figure)
        theirs = each.get(line.theirs, {}).get(figure)
        if ours is not None and theirs:
            pairs.append((ours, theirs))
    if not pairs:
        return None
    ratios = [ours / theirs for ours, theirs in pairs]
    return Ratios(
        median=statistics.median(ratios),
        least=min(ratios),
        most=max(ratios),
        ours=statistics.median(ours for ours, _ in pairs),
        theirs=statistics.median(theirs for _, theirs in pairs),
        rounds=len(pairs),
    )


def _subject(name: str) -> str:
    return {
        "java": "Java without its journal",
        "java-journal": "Java",
        "java on java": "Java on Java",
        "limit": "the limit",
        "synced limit": "the limit that syncs",
        "sync": "compiled",
    }[name]


def _figure(name: str, value: float) -> str:
    if name.endswith("_bytes"):
        return f"{value / 2**20:,.0f} MiB"
    if name.endswith("_s") and "per_s" not in name:
        return f"{value:.2f} s"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _spread(ratios: Ratios) -> str:
    return f"{ratios.median:.2f} ({ratios.least:.2f}, {ratios.most:.2f})"


def _target(at_least: float | None, at_most: float | None) -> str:
    if at_least is not None:
        return f"≥ {at_least:g}"
    return "" if at_most is None else f"≤ {at_most:g}"
