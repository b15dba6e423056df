"""Bars and trends, and what a terminal without Unicode gets of them."""

from __future__ import annotations

import pytest
from bkbox_tui.charts import bar, top, trend
from bkbox_tui.glyphs import ascii_of, is_plain

from tests.tui.drawn import SIZES, SNAPSHOTS


def test_a_bar_has_its_width() -> None:
    assert bar(0.5, 8) == "████░░░░"
    assert (bar(-1, 3), bar(2, 3), bar(None, 3)) == ("░░░", "███", "···")


def test_a_trend_ends_at_the_right_and_scales_to_its_largest() -> None:
    assert trend([0, 4, 8], 5) == ["   ▄█"]
    assert trend([1, 2, 4, 8], 2) == ["▄█"], "the newest"
    assert trend([8, 4], 2, 2) == ["█ ", "██"]
    assert trend([0.001, 100], 2) == ["▁█"], "little is not nothing"
    assert trend([], 3) == ["   "]
    assert trend([0, 0], 3) == ["   "]
    assert trend([1], 0) == [""]
    assert top([9, 1, 4], 2) == 4
    assert top([], 2) == 0


@pytest.mark.parametrize(
    ("environ", "encoding", "plain"),
    [
        ({"TERM": "xterm-256color", "LANG": "C.UTF-8"}, "utf-8", False),
        ({"TERM": "xterm"}, "utf-8", False),
        ({"TERM": "linux", "LANG": "C.UTF-8"}, "utf-8", True),
        ({"TERM": "dumb"}, "utf-8", True),
        ({}, "utf-8", True),
        ({"TERM": "xterm", "LANG": "C"}, "utf-8", True),
        ({"TERM": "xterm", "LANG": "C", "LC_ALL": "en_US.UTF-8"}, "utf-8", False),
        ({"TERM": "xterm", "LANG": "C.UTF-8"}, "iso-8859-1", True),
    ],
)
def test_which_terminals_have_ascii_alone(
    environ: dict[str, str], encoding: str, plain: bool
) -> None:
    assert is_plain(environ, encoding) is plain


def test_every_character_of_every_panel_has_one_in_ascii() -> None:
    pages = [path.read_text() for path in SNAPSHOTS.iterdir()]
    assert len(pages) >= 2 * len(SIZES)
    for page in pages:
        plain = ascii_of(page)
        assert plain.isascii()
        assert len(plain) == len(page)
        assert plain.count("?") == page.count("?"), "translated, not given up"
    assert ascii_of("中") == "?"
