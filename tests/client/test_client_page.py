"""The tables of docs/client.md name tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bkbox import errors

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "client.md"


def rows(head: str) -> list[list[str]]:
    """The cells of a table without its head."""
    text = PAGE.read_text()
    table = text[text.index(head) :].partition("\n\n")[0]
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()[2:]
    ]


@pytest.mark.parametrize(
    ("head", "at_least"), [("| feature | here |", 50), ("| done | error | test |", 24)]
)
def test_every_row_has_a_test_that_exists(head: str, at_least: int) -> None:
    found = rows(head)
    assert len(found) >= at_least
    for cells in found:
        named, second, test = cells[0], cells[1], cells[-1].strip("`")
        if second == "no":
            assert test == "\N{EN DASH}", named
            continue
        file, _, name = test.partition(": ")
        path = ROOT / "tests" / file
        assert path.exists(), f"{named}: there is no {path}"
        assert not name or re.search(rf"^(?:async )?def {name}\b", path.read_text(), re.M), (
            f"{named}: no {name}"
        )


def test_every_error_that_is_named_is_there_and_looked_for() -> None:
    for done, told, test in rows("| done | error | test |"):
        text = (ROOT / "tests" / test.strip("`").partition(": ")[0]).read_text()
        for name in re.findall(r"\b\w+Error\b", told):
            assert name in text, f"{done}: nothing in {test} looks for {name}"
            assert name == "TypeError" or hasattr(errors, name), name
