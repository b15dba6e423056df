"""A look at the screen of an installed bkbox, run by that installation's own Python: as text, and as a picture.

``python eveningscreen.py CONFIG|RECORDING KEYS WORDS PICTURE``: press the keys, wait until all the words (a JSON list)
are there, write the picture, print the text.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path

from bkbox_tui.app import Tui
from bkbox_tui.sources import Bookie, Recording, Source

from bkbox.base.commandline import set_origin
from bkbox.config import load as configuration

SIZE = (110, 32)
_PATIENCE_S = 60.0


def text_of(app: Tui) -> str:
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(part.text for part in strip).rstrip() for strip in strips)


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


async def look(source: Source, keys: list[str], words: list[str]) -> tuple[str, str]:
    app = Tui(source, wall_ms=wall_ms, recordings=Path("/nonexistent"))
    async with app.run_test(size=SIZE) as pilot:
        end = time.monotonic() + _PATIENCE_S
        await pilot.press(*keys)
        while not all(word in text_of(app) for word in words):
            if time.monotonic() > end:
                raise SystemExit(f"not on the screen: {words}\n{text_of(app)}")
            await pilot.pause(0.05)
        return text_of(app), app.export_screenshot(title="bkbox tui")


def main() -> None:
    what, keys, words, picture = sys.argv[1:]
    source: Source
    if what.endswith(".toml"):
        set_origin(config=what)  # as the command does
        source = Bookie.here(configuration.load(Path(what), os.environ), wall_ms)
    else:
        source = Recording(Path(what))
    text, drawn = asyncio.run(look(source, keys.split(), json.loads(words)))
    Path(picture).write_text(drawn)
    print(text)


if __name__ == "__main__":
    main()
