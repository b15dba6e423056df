"""Pictures of the screen for docs/screen.md, and each panel as plain text at the least and at a large size:
``python -m tests.tui.drawn`` makes docs/pictures/panel-*.svg and tests/tui/snapshots anew.

What is compared is their text: how Textual draws it changes from version to version.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

from bkbox_tui.app import Tui
from bkbox_tui.keys import PANELS
from textual.pilot import Pilot

from tests.tui.screens import (
    LARGE,
    LOSSES,
    NOW_MS,
    SMALL,
    Staged,
    in_limbo,
    lines_of,
    past,
    settled,
)

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
SNAPSHOTS = Path(__file__).parent / "snapshots"
SIZE = (110, 32)
SIZES = (SMALL, LARGE)

_SPACE = "\N{NO-BREAK SPACE}"


@functools.cache
def pictures() -> dict[str, str]:
    """Pictures of the panels of a bookie that has lost a disk, by name."""
    return _each_panel(SIZE, lambda app: app.export_screenshot(title="bkbox tui"))


def as_text(size: tuple[int, int]) -> dict[str, str]:
    """The panels of the same bookie as text, by name."""
    return _each_panel(size, lambda app: "\n".join([*lines_of(app), ""]))


def _each_panel(size: tuple[int, int], draw: Callable[[Tui], str]) -> dict[str, str]:
    async def go() -> dict[str, str]:
        app, found = _screen(), {}
        async with app.run_test(size=size) as pilot:
            for name, _, _ in PANELS:
                await _at_rest(app, pilot, name)
                found[name] = draw(app)
        return found

    return asyncio.run(go())


def snapshot_of(panel: str, size: tuple[int, int]) -> Path:
    return SNAPSHOTS / f"{panel}-{size[0]}x{size[1]}.txt"


def _screen() -> Tui:
    snapshots = list(past(replace(in_limbo(), losses=LOSSES)))
    app = Tui(Staged(snapshots[-1]), wall_ms=lambda: NOW_MS, recordings=Path("/nonexistent"))
    for snapshot in snapshots:
        app.view.update(snapshot)
    app.animation_level = "none"  # half of a movement might look like its end
    return app


async def _at_rest(app: Tui, pilot: Pilot[None], panel: str) -> None:
    """Show a panel until nothing on it changes any more."""
    app.action_panel(panel)
    before: list[str] = []
    while (now := lines_of(app)) != before or app.view.snapshot is None or app.panel_name != panel:
        before = now
        await settled(0.3)
        await pilot.pause()


def text_of_svg(picture: Path | str) -> str:
    """The words of a picture, a line for each line of the screen."""
    text = picture.read_text() if isinstance(picture, Path) else picture
    lines: dict[float, list[tuple[float, str]]] = {}
    for element in ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}text"):
        if "clip-path" in element.attrib:
            place = float(element.attrib["y"]), float(element.attrib["x"])
            lines.setdefault(place[0], []).append((place[1], element.text or ""))
    return "\n".join(
        "".join(part for _, part in sorted(parts)).replace(_SPACE, " ").rstrip()
        for _, parts in sorted(lines.items())
    )


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, picture in pictures().items():
        (FOLDER / f"panel-{name}.svg").write_text(picture)
    SNAPSHOTS.mkdir(exist_ok=True)
    for size in SIZES:
        for name, text in as_text(size).items():
            snapshot_of(name, size).write_text(text)


if __name__ == "__main__":
    main()
