"""A stranger's evening: everything that docs/operations.md tells, on real processes of an installed wheel."""

from __future__ import annotations

import re
from pathlib import Path

from tests.host.evening import PICTURES, SCREENS, Evening, spend
from tests.tui.drawn import text_of_svg

PAGE = PICTURES.parent / "operations.md"


def test_the_evening(bin_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    spend(Evening(bin_folder, tmp_path, tmp_path / "pictures"))
    for name, (_, words) in SCREENS.items():
        text = text_of_svg(tmp_path / "pictures" / f"{name}.svg")
        assert all(word in text for word in words), text


def test_the_page_shows_all_screens_and_they_say_what_it_tells() -> None:
    page = PAGE.read_text()
    shown = re.findall(r"\(pictures/(evening-[a-z]+)\.svg\)", page)
    assert shown == list(SCREENS)
    for name, (_, words) in SCREENS.items():
        text = text_of_svg(PICTURES / f"{name}.svg")
        assert all(word in text for word in words), (
            f"make it anew: python -m tests.host.evening: {name}"
        )
