"""What each key does: the table of keys is walked, and each has a look at what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from bkbox_tui.app import Tui
from bkbox_tui.dialogs import HelpScreen, Page, Question
from bkbox_tui.keys import KEYS, PANELS, Key
from bkbox_tui.panels.cluster import Cluster
from bkbox_tui.panels.events import Events
from bkbox_tui.panels.limbo import Limbo
from bkbox_tui.recording import read_recording
from bkbox_tui.snapshot import Snapshot
from bkbox_tui.table import Table
from textual.pilot import Pilot
from textual.widgets import Input

from bkbox.jobs.job import JobAction, JobState
from tests.tui.screens import LARGE, SMALL, Staged, in_limbo, limbo_job, lines_of, text_of
from tests.tui.test_screen import until

SECOND = "2 e"
"""The second of the ledgers in limbo has this text, and no other."""


class Acting(Staged):
    """Keeps what was to be done to jobs."""

    def __init__(self, *snapshots: Snapshot) -> None:
        super().__init__(*snapshots)
        self.acts: list[tuple[int, JobAction, int | None]] = []

    @property
    def taken(self) -> int:
        return self._script.taken

    async def act(self, job: int, action: JobAction, bytes_per_second: int | None = None) -> None:
        self.acts.append((job, action, bytes_per_second))


@dataclass
class Seen:
    """A screen at which keys are pressed."""

    app: Tui
    pilot: Pilot[None]
    bookie: Acting
    folder: Path

    async def until(self, holds: Callable[[], bool]) -> None:
        await until(self.pilot, holds)

    async def says(self, *words: str) -> None:
        await self.until(lambda: all(word in text_of(self.app) for word in words))

    async def told(self, words: str) -> None:
        """In a message that comes and goes."""
        await self.until(lambda: any(words in each.message for each in self.app._notifications))

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def shows(self, panel: str) -> None:
        self.app.action_panel(panel)
        await self.until(lambda: self.app.panel_name == panel)

    async def acted(self, *expected: tuple[int, JobAction, int | None]) -> None:
        await self.until(lambda: self.bookie.acts == list(expected))
        self.bookie.acts.clear()

    async def asked(self) -> None:
        await self.until(lambda: isinstance(self.app.screen, Question))

    async def closed(self) -> None:
        await self.until(lambda: len(self.app.screen_stack) == 1)


async def goes_round(seen: Seen, key: Key) -> None:
    """Beyond the end of the list comes its other end."""
    names = [name for name, _, _ in PANELS]
    if key.action == "previous_panel":
        names.reverse()
    await seen.shows(names[-1])
    for expected in names[:2]:
        await seen.press(key.key)
        await seen.until(lambda expected=expected: seen.app.panel_name == expected)


async def shows_a_panel(seen: Seen, key: Key) -> None:
    await seen.press(key.key)
    await seen.until(lambda: key.action == f"panel('{seen.app.panel_name}')")


async def helps(seen: Seen, key: Key) -> None:
    await seen.press(key.key)
    await seen.until(lambda: isinstance(seen.app.screen, HelpScreen))
    await seen.says("1          Overview     Is it safe")
    await seen.press("end")
    await seen.says("Leave; the bookie is not touched.")
    await seen.press("escape")
    await seen.closed()


async def freezes(seen: Seen, key: Key) -> None:
    await seen.press(key.key)
    await seen.until(lambda: "PAUSED" in lines_of(seen.app)[0])
    await seen.press(key.key)
    await seen.until(lambda: "PAUSED" not in lines_of(seen.app)[0])


async def records(seen: Seen, key: Key) -> None:
    await seen.press(key.key)
    await seen.until(lambda: "RECORDING" in text_of(seen.app).replace("\n", " "))
    await seen.press(key.key)
    await seen.until(lambda: seen.app._recorder is None)
    (file,) = seen.folder.glob("bkbox-*.jsonl.gz")
    assert next(iter(read_recording(file))).status is not None


async def looks_now(seen: Seen, key: Key) -> None:
    await seen.press("space")
    await seen.until(lambda: "PAUSED" in lines_of(seen.app)[0])
    taken = seen.bookie.taken
    await seen.press(key.key)
    await seen.until(lambda: seen.bookie.taken > taken)
    await seen.until(lambda: "PAUSED" not in lines_of(seen.app)[0])


async def filters(seen: Seen, key: Key) -> None:
    table = seen.app.query_one(Limbo).query_one(Table)
    await seen.until(lambda: table.row_count == 2)
    await seen.press(key.key, *SECOND)
    await seen.until(lambda: table.row_count == 1)
    await seen.press(*["backspace"] * len(SECOND), "enter")
    await seen.until(lambda: table.row_count == 2)
    assert not seen.app.query_one(Limbo).query_one(Input).display


async def opens(seen: Seen, key: Key) -> None:
    """A bookie that answered is shown on all panels, and escape leads back; of another, all that is known is."""
    table = seen.app.query_one(Cluster).query_one(Table)
    await seen.until(lambda: table.row_count == 5)
    await seen.press("home", key.key)
    await seen.until(lambda: isinstance(seen.app.screen, Page))
    await seen.says("10.0.0.3:3181: [X] no answer 12 s", "nothing answers")
    await seen.press("escape")
    await seen.closed()
    await seen.press("down", key.key)
    await seen.until(lambda: seen.app.panel_name == "overview")
    await seen.until(lambda: "/nonexistent/2.sock" in lines_of(seen.app)[0])
    await seen.until(lambda: "NOT CONNECTED" in lines_of(seen.app)[0])
    await seen.press("escape")
    await seen.until(lambda: seen.app.panel_name == "cluster")
    await seen.until(lambda: "10.0.0.1:3181  connected" in lines_of(seen.app)[0])


async def copies(seen: Seen, key: Key) -> None:
    await seen.press(key.key)
    await seen.until(lambda: seen.app.clipboard == "bring back 10.0.0.2:3181")


async def draws(seen: Seen, key: Key) -> None:
    await seen.press(key.key)
    await seen.until(lambda: bool([*seen.folder.glob("bkbox-*.svg")]))
    (picture,) = seen.folder.glob("bkbox-*.svg")
    assert "Safe?" in picture.read_text().replace("\N{NO-BREAK SPACE}", " ").replace("&#160;", " ")


async def shows_all_rows(seen: Seen, key: Key) -> None:
    await seen.shows("limbo")
    table = seen.app.query_one(Limbo).query_one(Table)
    line = seen.app.query_one(Limbo).query_one(Input)
    for typed in ([*SECOND], [*SECOND, "enter"]):  # while it is typed, and afterwards
        await seen.press("slash", *typed)
        await seen.until(lambda: table.row_count == 1)
        await seen.press(key.key)
        await seen.until(lambda: table.row_count == 2)
        assert not line.display
        await seen.until(lambda: seen.app.focused is table)
    await seen.press("slash", *SECOND)
    await seen.shows("overview")
    await seen.until(lambda: seen.app.focused is not line)
    await seen.press("3")
    await seen.until(lambda: seen.app.panel_name == "limbo")
    assert line.value == SECOND, "a digit chooses a panel, and is not typed where nobody sees it"
    await seen.press(key.key)
    await seen.until(lambda: table.row_count == 2)


async def sorts(seen: Seen, key: Key) -> None:
    for column in ("ledger", "disk", "why", "what to do", "state"):
        await seen.press(key.key)
        await seen.says(f"2 stuck, by {column}")


async def explains(seen: Seen, key: Key) -> None:
    await seen.press("home", key.key)
    await seen.until(lambda: isinstance(seen.app.screen, Page))
    await seen.says("what to do: bring back 10.0.0.2:3181", "blocked by: entry 6 may have been")
    await seen.says(
        "no bookie has 3", "no bookie can tell of 5 to 6", "[+] a:1: 5 entries, the last 4"
    )
    await seen.press("end")
    await seen.says("[?] c:3: does not answer", "entry 6: a:1 does not have it")
    await seen.press("escape")
    await seen.closed()
    await seen.press("down", key.key)
    await seen.says("it cannot be told: there is no ledger 2")
    await seen.press("escape")
    await seen.closed()


async def leaves_out(seen: Seen, key: Key) -> None:
    rows = seen.app.query_one(Events).query_one(Table)
    await seen.says("as bad as 'info' or worse", "the bookie answers")
    every = rows.row_count
    await seen.press(key.key)
    await seen.says("as bad as 'warning' or worse")
    assert 0 < rows.row_count < every
    await seen.press(key.key)
    await seen.says("as bad as 'error' or worse")
    await seen.press(key.key)
    await seen.until(lambda: rows.row_count == every)


async def pauses_and_resumes(seen: Seen, key: Key) -> None:
    await seen.press("home", key.key)
    await seen.acted((4, JobAction.RESUME, None))
    await seen.press("down", key.key)
    await seen.acted((3, JobAction.PAUSE, None))
    await seen.press("down", key.key)  # one that has ended
    await seen.told("there is no job under the cursor that has not ended")
    assert seen.bookie.acts == []


async def limits(seen: Seen, key: Key) -> None:
    await seen.press("home", key.key)
    await seen.asked()
    await seen.press(*"[/]", "enter")
    await seen.told("[/] is not a rate")
    await seen.closed()
    assert seen.bookie.acts == []
    await seen.press(key.key)
    await seen.asked()
    await seen.press(*"50MiB", "enter")
    await seen.acted((4, JobAction.RATE, 50 << 20))


async def cancels_by_id(seen: Seen, key: Key) -> None:
    await seen.press("home", "down", key.key)
    await seen.asked()
    await seen.press("4", "enter")
    await seen.says("that is not 3: nothing was done")
    assert seen.bookie.acts == []
    await seen.press("backspace", "3", "enter")
    await seen.acted((3, JobAction.CANCEL, None))


async def changes_colours(seen: Seen, key: Key) -> None:
    for theme in ("bkbox-light", "ansi-dark", "bkbox-dark"):
        await seen.press(key.key)
        await seen.until(lambda theme=theme: seen.app.theme == theme)
        await seen.says("Safe?", "[X]")


async def leaves(seen: Seen, key: Key) -> None:
    await seen.press(key.key)
    await seen.until(lambda: not seen.app.is_running)


CHECKS: dict[str, Callable[[Seen, Key], Awaitable[None]]] = {
    **{f"panel('{name}')": shows_a_panel for name, _, _ in PANELS},
    "next_panel": goes_round,
    "previous_panel": goes_round,
    "help": helps,
    "freeze": freezes,
    "record": records,
    "refresh": looks_now,
    "filter": filters,
    "leave": shows_all_rows,
    "open": opens,
    "copy": copies,
    "picture": draws,
    "sort": sorts,
    "explain": explains,
    "severity": leaves_out,
    "pause_job": pauses_and_resumes,
    "rate_job": limits,
    "cancel_job": cancels_by_id,
    "theme": changes_colours,
    "quit": leaves,
}


@pytest.mark.parametrize(
    "size",
    [pytest.param(SMALL, id="80x24"), pytest.param(LARGE, id="200x60", marks=pytest.mark.slow)],
)
def test_every_key_does_what_it_says(tmp_path: Path, size: tuple[int, int]) -> None:
    assert [key.action for key in KEYS if key.action not in CHECKS] == []
    jobs = (limbo_job(), limbo_job(JobState.PAUSED, 4), limbo_job(JobState.DONE, 2))
    bookie = Acting(Snapshot(1_000, in_limbo(2, 2), jobs))
    app = Tui(bookie, wall_ms=lambda: 1_000, recordings=tmp_path)

    async def go() -> None:
        async with app.run_test(size=size, notifications=True) as pilot:
            await until(pilot, lambda: app.view.snapshot is not None)
            seen = Seen(app, pilot, bookie, tmp_path)
            for key in KEYS:
                panel = (*key.panels, PANELS[0][0])[0]
                if not key.action.startswith("panel("):
                    await seen.shows(panel)
                    await pilot.pause()
                await CHECKS[key.action](seen, key)
                app.clear_notifications()

    asyncio.run(go())
