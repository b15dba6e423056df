"""What the rounds say: ratios with their spread, as a table, as JSON and as a picture.

``performance.json`` holds all figures, load by load. A run replaces the loads that it has measured, as a
whole, or adds its rounds to theirs; table and picture are always made of all that the file holds.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Container, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bkbox.errors import BenchError
from tests.bench.peers import picture
from tests.bench.peers.scenarios import BY_FOREIGN, LINES, LOADS, RATE_LIMIT_LINES, RATE_LINES, Line

_FILE = "performance.json"
_ASKED = "rate asked_per_s"

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


def tables(compared: list[Compared], rounds: Rounds) -> str:
    """In Markdown: the ratios, and the open loops; empty ones are left out."""
    plain, open_loops = _parted(compared)
    texts = [table(plain)] if plain else []
    if open_loops:
        texts.append(rate_table(open_loops, rounds))
    return "\n\n".join(texts)


def _parted(compared: list[Compared]) -> tuple[list[Compared], list[Compared]]:
    """The lines without a rate, and those of open loops."""
    open_loops = {line.name for line in RATE_LINES}
    columns = {line.name for line in RATE_LIMIT_LINES}
    plain = [each for each in compared if each.line.name not in open_loops | columns]
    return plain, [each for each in compared if each.line.name in open_loops]


def rate_table(compared: list[Compared], rounds: Rounds) -> str:
    """The open loops in Markdown: medians of bkbox and Java, the ratios that have targets, and the limit."""
    head = (
        "| open loop | asked/s | achieved/s | p50 ms | p99 ms | ratio (least, most) | target | p99.9 ms "
        "| ratio (least, most) | target | p99.99 ms | largest ms | the limit: p99, p99.9 ms; CPU µs "
        "| its p99.9 : Java's (least, most) | backlog | sent late, p99 ms | CPU µs | |"
    )
    rows = [head, "|---|--:|" + "--:|" * 15 + "---|"]
    for each in compared:
        line, tail = each.line, each.tail
        assert tail is not None
        of = [[found[name] for found in rounds[line.load]] for name in (line.ours, line.theirs)]

        def both(
            figure: str, scale: float, digits: int, of: list[list[dict[str, float]]] = of
        ) -> str:
            medians = (statistics.median(each[figure] for each in side) * scale for side in of)
            return " / ".join(f"{each:,.{digits}f}" for each in medians)

        asked = statistics.median(found[_ASKED] for found in of[0])
        reached = [all(found["rate is_reached"] for found in side) for side in of]
        verdict = {True: "reached", False: f"**missed: {', '.join(each.missed)}**", None: ""}[
            each.is_reached
        ]
        if not reached[0]:
            verdict = "**missed: bkbox cannot take this rate**"
        elif not reached[1]:
            verdict += "; Java cannot take this rate"
        cells = [
            line.text.removeprefix("at a constant rate "),
            f"{asked:,.0f}",
            both("rate achieved_per_s", 1, 0),
            both("adds p50_us", 1e-3, 2),
            both("adds p99_us", 1e-3, 2),
            _spread(each.ratios),
            _target(line.at_least, line.at_most),
            both("adds p999_us", 1e-3, 2),
            _spread(tail),
            _target(None, line.tail_at_most),
            both("adds p9999_us", 1e-3, 2),
            both("adds max_us", 1e-3, 2),
            *_of_limit(line.load, rounds),
            both("rate deepest_backlog", 1, 0),
            both("rate late_p99_us", 1e-3, 3),
            both("cpu_s_per_million", 1, 1),
            verdict,
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _of_limit(load: str, rounds: Rounds) -> tuple[str, str]:
    """Of the program that only appends and syncs: p99 and p99.9, ms, with the processor time per request, µs; and the
    ratio of its p99.9 to Java's. "" where it was not measured."""
    line = next(each for each in RATE_LIMIT_LINES if each.load == load)
    assert line.tail is not None
    figures = (line.figure, line.tail, "cpu_s_per_million")
    p99, p999, cpu = (_ratios(line, figure, rounds) for figure in figures)
    if p99 is None or p999 is None or cpu is None:
        return "", ""
    return f"{p99.ours / 1000:,.2f}, {p999.ours / 1000:,.2f}; {cpu.ours:,.1f}", _spread(p999)


def table(compared: list[Compared]) -> str:
    """The ratios in Markdown."""
    head = (
        "| load | bkbox | against | ratio (least, most) | target | p99.9 ms | against "
        "| ratio (least, most) | target | |"
    )
    rows = [head, "|---|--:|--:|--:|--:|--:|--:|--:|--:|---|"]
    for each in compared:
        line, ratios, tail = each.line, each.ratios, each.tail
        cells = [
            f"{line.text}, against {_subject(line)}",
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


def rounds_so_far(docs: Path, loads: Container[str]) -> Rounds:
    """The report's rounds of these loads. Raises BenchError if some are of another machine."""
    found = {name: each for name, each in _known_loads(docs).items() if name in loads}
    others = {each["machine"] for each in found.values()} - {machine()}
    if others:
        raise BenchError(
            f"the rounds in {docs / _FILE} are of another machine ({'; '.join(sorted(others))}): "
            "measure without --more"
        )
    return {name: each["rounds"] for name, each in found.items()}


def asked_rates(docs: Path) -> dict[str, int]:
    """The medians of the rates of the open loops in the report, requests per second, by load."""
    open_loops = {line.load for line in RATE_LINES}
    return {
        name: round(
            statistics.median(side[_ASKED] for each in of["rounds"] for side in each.values())
        )
        for name, of in _known_loads(docs).items()
        if name in open_loops
    }


def write(docs: Path, rounds: Rounds) -> None:
    """performance.json, performance.svg, and the table between the markers of performance.md."""
    loads = _known_loads(docs)
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
    docs.joinpath(_FILE).write_text(json.dumps({"lines": lines, "loads": known}, indent=1) + "\n")
    plain, open_loops = _parted(compared)
    docs.joinpath("performance.svg").write_text(picture.draw(plain))
    page = docs / "performance.md"
    text = page.read_text()
    if plain:
        text = replace_between(text, "peers", f"{_rounds(plain, known)}\n\n{table(plain)}")
    if open_loops:
        every = {name: each["rounds"] for name, each in known.items()}
        made = f"{_rounds(open_loops, known)}\n\n{rate_table(open_loops, every)}"
        text = replace_between(text, "rates", made)
    page.write_text(text)


def _known_loads(docs: Path) -> dict[str, Any]:
    """By name: the command, the machine and the rounds of each load in the report; empty without a report."""
    file = docs / _FILE
    return dict(json.loads(file.read_text())["loads"]) if file.exists() else {}


def _rounds(compared: list[Compared], known: dict[str, dict[str, Any]]) -> str:
    """How many rounds there were, and on which machines."""
    loads = [known[name] for name in dict.fromkeys(each.line.load for each in compared)]
    machines = "; ".join(sorted({each["machine"] for each in loads}))
    least = min(len(each["rounds"]) for each in loads)
    return f"Medians of {least} rounds or more. {machines}."


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


def _subject(line: Line) -> str:
    """What the line compares with."""
    if line.ours.endswith(BY_FOREIGN):
        return "bkbox's own load" if line.theirs == "sync" else "Java by the same"
    return {
        "java": "Java without its journal",
        "java-journal": "Java",
        "java on java": "Java on Java",
        "limit": "the limit",
        "synced limit": "the limit that syncs",
        "sync": "compiled",
    }[line.theirs]


def _figure(name: str, value: float) -> str:
    if name.endswith("_bytes"):
        return f"{value / 2**20:,.0f} MiB"
    if name.endswith("_us") and not name.endswith("cpu_us"):
        return f"{value / 1000:,.2f} ms"
    if name.endswith("_s") and "per_s" not in name:
        return f"{value:.2f} s"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _spread(ratios: Ratios) -> str:
    return f"{ratios.median:.2f} ({ratios.least:.2f}, {ratios.most:.2f})"


def _target(at_least: float | None, at_most: float | None) -> str:
    if at_least is not None and at_most is not None:
        return f"{at_least:g} to {at_most:g}"
    if at_least is not None:
        return f"≥ {at_least:g}"
    return "" if at_most is None else f"≤ {at_most:g}"
