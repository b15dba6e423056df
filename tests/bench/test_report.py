"""From rounds to ratios, table and picture."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bkbox.errors import BenchError
from tests.bench.peers import picture, report, runner
from tests.bench.peers.scenarios import FOREIGN_LOADS, LINES, LOADS, RATE_LOADS, Line

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


ROUNDS = {
    "w256": [
        {
            "sync": figures(ours, 10.0, 100 << 20),
            "java-journal": figures(100.0, theirs_tail, 2000 << 20),
            "interpreted": figures(50.0, 10.0, 1.0),
        }
        for ours, theirs_tail in ((300.0, 100.0), (500.0, 40.0), (320.0, 10.0))
    ]
}


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


def test_what_was_not_measured_is_left_out() -> None:
    assert report.compare(LINES, {}) == []
    partly = {"w256": [{"sync": {}}, *ROUNDS["w256"]]}
    found = report.compare([LINE, PLAIN], partly)
    assert [each.ratios.rounds for each in found] == [3, 3]


def test_a_run_replaces_its_loads_and_keeps_the_others(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text("before\n<!-- peers: begin -->\nold\n<!-- peers: end -->\nafter\n")
    report.write(tmp_path, ROUNDS)
    report.write(
        tmp_path, {"w1": [{"sync": {"adds per_s": 8.0}, "java-journal": {"adds per_s": 4.0}}]}
    )
    text = page.read_text()
    assert text.startswith("before\n<!-- peers: begin -->\nMedians of 1 rounds or more.")
    assert text.endswith("<!-- peers: end -->\nafter\n")
    assert "old" not in text
    assert (
        text.count("| 1 KiB, window 256: sync, against Java | 320 | 100 | 3.20 (3.00, 5.00)") == 1
    )
    assert (
        text.count("| 1 KiB, window 1: sync, against Java | 8.00 | 4.00 | 2.00 (2.00, 2.00)") == 1
    )
    document = json.loads(tmp_path.joinpath("performance.json").read_text())
    assert set(document["loads"]) == {"w256", "w1"}
    assert len(document["loads"]["w256"]["rounds"]) == 3
    report.write(tmp_path, {"w256": ROUNDS["w256"][:1]})
    document = json.loads(tmp_path.joinpath("performance.json").read_text())
    assert len(document["loads"]["w256"]["rounds"]) == 1
    with pytest.raises(ValueError, match="growth"):
        report.replace_between(text, "growth", "")


def test_rounds_are_added_to_those_of_the_same_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "performance.md"
    page.write_text("<!-- peers: begin -->\n<!-- peers: end -->\n")
    assert report.rounds_so_far(tmp_path, {"w256"}) == {}
    report.write(tmp_path, ROUNDS)
    assert report.rounds_so_far(tmp_path, {"w1"}) == {}
    found = report.rounds_so_far(tmp_path, {"w1", "w256"})
    assert found == ROUNDS
    monkeypatch.setattr(report, "machine", lambda: "another")
    with pytest.raises(BenchError, match=r"are of another machine .* measure without --more"):
        report.rounds_so_far(tmp_path, {"w256"})
    assert report.rounds_so_far(tmp_path, {"w1"}) == {}


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
    assert runner.chosen([], whole_loads=False) == list(LINES)
    (line,) = runner.chosen(["w1/sync:java-journal/adds"], whole_loads=False)
    assert line.name == "w1/sync:java-journal/adds per_s"
    lines = runner.chosen(["window 16"], whole_loads=True)
    assert {line.ours for line in lines} == {"write", "sync", "limit", "synced limit"}
    lines = runner.chosen(["constant rate"], whole_loads=True)
    assert {line.load for line in lines} == {load.name for load in RATE_LOADS}
    lines = runner.chosen(["foreign"], whole_loads=True)
    assert {line.load for line in lines} == {load.name for load in FOREIGN_LOADS}


def test_an_open_loop_has_a_table_of_its_own(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    marks = "".join(
        f"<!-- {name}: begin -->\nold\n<!-- {name}: end -->\n" for name in ("peers", "rates")
    )
    page.write_text(marks)
    first, second, *_ = RATE_LOADS

    def side(latency: float, reached: float) -> dict[str, float]:
        latencies = {f"adds {name}_us": latency for name in ("p50", "p99", "p999", "p9999", "max")}
        rate = {
            "rate asked_per_s": 1000.0,
            "rate achieved_per_s": 990.0,
            "rate is_reached": reached,
            "rate deepest_backlog": 12.0,
            "rate late_p99_us": 20.0,
        }
        return latencies | rate | {"cpu_s_per_million": 5.0}

    report.write(
        tmp_path,
        {
            first.name: [
                {
                    "sync": side(100.0, 1.0),
                    "java-journal": side(1000.0, 0.0),
                    "synced limit": side(50.0, 1.0),
                }
            ],
            second.name: [{"sync": side(100.0, 0.0), "java-journal": side(1000.0, 1.0)}],
        },
    )
    text = page.read_text()
    assert text.startswith("<!-- peers: begin -->\nold\n"), "no line of it was measured"
    good, bad = (line for line in text.splitlines() if "KiB, 1 ledger" in line)
    assert good.startswith("| 1,000/s, 1 KiB, 1 ledger | 1,000 | 990 / 990 | 0.10 / 1.00 |")
    assert good.count("| 0.10 (0.10, 0.10) |") == 2
    assert "| 0.05, 0.05; 5.0 | 0.05 (0.05, 0.05) |" in good
    assert good.endswith("| reached; Java cannot take this rate |")
    assert bad.endswith("| **missed: bkbox cannot take this rate** |")
    (head,) = (line for line in text.splitlines() if line.startswith("| open loop"))
    assert {line.count("|") for line in (head, good, bad)} == {19}
    assert report.asked_rates(tmp_path) == {first.name: 1000, second.name: 1000}


def test_two_load_generators_have_to_agree_in_both_directions() -> None:
    (line,) = runner.chosen(["foreign w256/sync by foreign:sync"], whole_loads=False)
    for rate, reached in ((70.0, False), (90.0, True), (120.0, True), (130.0, False)):
        rounds = {
            line.load: [{line.ours: {"adds per_s": rate}, line.theirs: {"adds per_s": 100.0}}]
        }
        (found,) = report.compare([line], rounds)
        assert found.is_reached is reached
    assert "| 0.8 to 1.25 |" in report.table([found])
    assert "foreign" not in picture.draw([found])
