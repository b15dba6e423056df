"""The table of tiers in CONTRIBUTING.md, from the last `make test-all` of this checkout: python -m tests.docs.tiers"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.bench.peers.report import machine, replace_between
from tests.harness.tiers import TIERS, noted_seconds, tier_of

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"


def first_cells(tier: str) -> str:
    """The beginning of a tier's row, which needs no run."""
    return f"| `{tier}` | {TIERS[tier]} |"


class _Counts:
    """A plugin that counts the tests of each tier."""

    def __init__(self) -> None:
        self.tests: Counter[str] = Counter()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.tests.update(tier_of(item) for item in session.items)


def table() -> str:
    """Markdown: a row for each tier. Its seconds, where it was run as a whole, are those of its tests added up."""
    counts, seconds = _Counts(), noted_seconds()
    pytest.main(["--collect-only", "-qq", "--no-summary"], plugins=[counts])
    rows = ["| tier | what it proves | tests | seconds, added up |", "|---|---|--:|--:|"]
    for tier in TIERS:
        rows.append(
            f"{first_cells(tier)} {counts.tests[tier]:,} | {seconds.get(tier, 'not run')} |"
        )
    return "\n".join(
        [
            "",
            *rows,
            "",
            f"Last whole runs, on {machine()}; written by `python -m tests.docs.tiers`.",
            "",
        ]
    )


if __name__ == "__main__":
    PAGE.write_text(replace_between(PAGE.read_text(), "tiers", table()))
