"""From rounds to ratios, table and picture."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.bench.peers import picture, report, runner
from tests.bench.peers.scenarios import LINES, LOADS, Line

LINE = Line(
    "adds: sync",
    "w256",
    "sync",
    "java-journal",
    "adds per_s",
    at_least=3,
    tail="adds p999_us",
    tail_at_most=0.5,
)
COST = Line("memory", "w256", "sync", "java-journal", "rss_bytes", at_most=0.1)
PLAIN = Line("interpreted", "w256", "interpreted", "sync", "adds per_s")


def figures(adds: float, tail: float, rss: float) -> dict[str, float]:
    return {"adds per_s": adds, "adds p999_us": tail, "rss_bytes": rss}


ROUNDS = [
    {
        ("w256", "sync"): figures(ours, 10.0, 100 << 20),
        ("w256", "java-journal"): figures(100.0, theirs_tail, 2000 << 20),
        ("w256", "interpreted"): figures(50.0, 10.0, 1.0),
    }
    for ours, theirs_tail in ((300.0, 100.0), (500.0, 40.0), (320.0, 10.0))
]


def test_ratios_are_those_of_each_round() -> None:
    line, cost, plain = report.compare([LINE, COST, PLAIN], ROUNDS)
    assert (line.ratios.median, line.ratios.least, line.ratios.most) == (3.2, 3.0, 5.0)
    assert line.tail is not None
    assert (line.tail.median, line.tail.least, line.tail.most) == (0.25, 0.1, 1.0)
    assert (line.ratios.ours, line.ratios.theirs, line.ratios.rounds) == (320.0, 100.0, 3)
    assert (line.is_reached, cost.is_reached, plain.is_reached) == (True, True, None)


@pytest.mark.parametrize(
    ("change", "reached"),
    [({"at_least": 3.2}, True), ({"at_least": 3.3}, False), ({"tail_at_most": 0.2}, False)],
)
def test_both_targets_have_to_be_reached(change: dict[str, float], reached: bool) -> None:
    values = {name: getattr(LINE, name) for name in LINE.__slots__} | change
    (found,) = report.compare([Line(**values)], ROUNDS)
    assert found.is_reached is reached


def test_a_line_without_figures_is_left_out() -> None:
    assert report.compare(list(LINES), []) == []
    assert [each.line for each in report.compare([LINE, PLAIN], [{}, *ROUNDS])] == [LINE, PLAIN]


def test_the_report_replaces_what_was_between_the_markers(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text("before\n<!-- peers: begin -->\nold\n<!-- peers: end -->\nafter\n")
    compared = report.compare([LINE, COST, PLAIN], ROUNDS)
    report.write(tmp_path, compared, ROUNDS)
    report.write(tmp_path, compared, ROUNDS)
    text = page.read_text()
    assert text.startswith("before\n<!-- peers: begin -->\n3 rounds")
    assert text.endswith("<!-- peers: end -->\nafter\n")
    assert "old" not in text
    assert text.count("| adds: sync, against Java |") == 1
    document = json.loads(tmp_path.joinpath("performance.json").read_text())
    assert [each["reached"] for each in document["lines"]] == [True, True, None]
    assert len(document["rounds"]) == 3
    with pytest.raises(ValueError, match="growth"):
        report.replace_between(text, "growth", "")


def test_the_picture_is_svg_with_a_bar_for_each_target() -> None:
    text = picture.draw(report.compare([LINE, COST, PLAIN], ROUNDS))
    root = ElementTree.fromstring(text)
    assert root.tag.endswith("svg")
    assert len(re.findall(r"<rect ", text)) == 1 + 3
    assert "interpreted" not in text
    assert "20.00 (≥ 10)" in text  # memory: the less the better


def test_every_line_names_a_load_and_can_be_chosen() -> None:
    loads = {load.name for load in LOADS}
    assert {line.load for line in LINES} == loads
    assert len({line.name for line in LINES}) == len(LINES)
    assert len({line.text for line in LINES}) == len(LINES)
    assert runner.chosen([]) == list(LINES)
    assert [line.name for line in runner.chosen(["w1/sync"])] == ["w1/sync:java-journal/adds per_s"]
