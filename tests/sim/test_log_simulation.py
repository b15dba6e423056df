"""What holds for logs, over many simulated worlds, and that the checks would find it if it did not."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from proof.sim.logs.simulation import BREAKS, main, run

pytestmark = pytest.mark.usefixtures("nobody_is_left")

PAGE = Path(__file__).parents[2] / "docs" / "client.md"

SEEDS = int(os.environ.get("TESTS_LOG_SEEDS", "150"))


def test_nothing_breaks() -> None:
    for seed in range(1, SEEDS + 1):
        verdict = run(seed)
        assert verdict.problem is None, f"seed {seed}: {verdict.problem}"


def test_seeds_that_failed_once() -> None:
    """102116: whoever opened a log was told of a truncation, and not that somebody else had opened it since."""
    assert run(102116).problem is None


def test_a_seed_decides_everything() -> None:
    assert run(17) == run(17) != run(18)


@pytest.mark.parametrize("name", BREAKS)
def test_a_safeguard_that_is_taken_away_is_missed(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--seeds", "120", "--break", name]) == 0
    assert "seed " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("epoch-is-not-asked", "one writer at a time: the records of two openings are mixed"),
        ("failed-append-ends-nothing", r"no hole: of what opening \d+ appended not a first part"),
        ("reader-goes-on-too-early", "no hole: a reader did not see"),
        ("room-is-not-waited-for", "no end of its own: WindowFullError"),
        ("list-is-overwritten", "leader .: AssertionError: two openings have one epoch"),
    ],
)
def test_what_has_to_hold_is_looked_for(name: str, wanted: str) -> None:
    """Each of these is seen as what it is, and not only by what comes of it."""
    problems = (run(seed, without=name).problem for seed in range(100, 400))
    assert any(re.match(wanted, problem) for problem in problems if problem is not None)


def test_the_page_has_all_of_them() -> None:
    _, _, table = PAGE.read_text().partition("| `--break` |")
    rows = [
        line.split(" | ")[0].strip("| ") for line in table.partition("\n\n")[0].splitlines()[2:]
    ]
    assert rows == list(BREAKS)
