"""The pictures in docs/screen.md show what the screen shows, and each panel looks as it did, at both sizes."""

from __future__ import annotations

import pytest
from bkbox_tui.keys import PANELS

from tests.tui.drawn import FOLDER, SIZES, SNAPSHOTS, as_text, pictures, snapshot_of, text_of_svg


@pytest.mark.parametrize("panel", [name for name, _, _ in PANELS])
def test_a_picture_is_up_to_date(panel: str) -> None:
    kept = text_of_svg(FOLDER / f"panel-{panel}.svg")
    assert kept == text_of_svg(pictures()[panel]), "run: python -m tests.tui.drawn"
    assert f"](pictures/panel-{panel}.svg)" in (FOLDER.parent / "screen.md").read_text()


@pytest.mark.parametrize("size", SIZES, ids=["80x24", "200x60"])
def test_each_panel_looks_as_it_did(size: tuple[int, int]) -> None:
    for panel, text in as_text(size).items():
        assert text == snapshot_of(panel, size).read_text(), "run: python -m tests.tui.drawn"
        assert len(text.splitlines()) == size[1]


def test_there_is_a_text_of_each_panel_and_no_other() -> None:
    wanted = {snapshot_of(panel, size) for panel, _, _ in PANELS for size in SIZES}
    assert set(SNAPSHOTS.iterdir()) == wanted
