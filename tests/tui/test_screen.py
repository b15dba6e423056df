"""The screen under Textual's pilot: every panel and key, at 80 x 24 and at 200 x 60, as plain text."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bkbox_tui.app import Tui
from bkbox_tui.events import EVENTS_MAX
from bkbox_tui.keys import PANELS, keys_of
from bkbox_tui.snapshot import DiskFiles, Snapshot
from bkbox_tui.table import Row, Table
from bkbox_tui.widgets import Card
from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.pilot import Pilot
from textual.strip import Strip
from textual.widgets import Input

from bkbox.api.admin.limbo import LimboLedger
from bkbox.api.admin.status import Process, StatusWarning
from tests.tui.screens import (
    LARGE,
    NOW_MS,
    SMALL,
    Script,
    Staged,
    healthy,
    in_limbo,
    limbo_job,
    lines_of,
    screen,
    text_of,
)

Steps = Callable[[Tui, Pilot[None]], Awaitable[None]]


def watch(app: Tui, steps: Steps, size: tuple[int, int] = SMALL) -> None:
    """Have the screen run, and do ``steps`` once the first snapshot is on it."""

    async def go() -> None:
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: app.view.snapshot is not None)
            await steps(app, pilot)

    asyncio.run(go())


async def until(pilot: Pilot[Any], holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < end, text_of(pilot.app)
        await pilot.pause()
        await asyncio.sleep(0.02)


SAID = {
    "overview": [
        "1 ledger cannot be repaired without help",
        "ledger 1: 1 entry is missing: 10.0.0.2:3181 is away",
        "→ bring back 10.0.0.2:3181",
        "17 in limbo",
        "1 stuck: 1 entry is mis",
        "50.0 GiB free",
        "3.1 ms",
        "[+] frontend           12%  62.0 MiB",
        "[+] 2 workers          59%   169 MiB",
    ],
    "disks": [
        "uuid-a",
        "last start: clean",
        "fsync",
        "150 GiB",
        "worker: up 2 h 0 min, cpu 31%, memory 85.0 MiB, restarts 0, pid 102",
    ],
    "limbo": ["17 left of 20", "1 stuck, by state", "all about it: enter"],
    "jobs": ["limbo", "running", "checking ledger 7", "15%"],
    "cookies": ["a recording does not have this"],
    "cluster": ["a recording does not have this"],
    "events": ["the bookie answers; it is running", "17 ledgers are in limbo"],
    "diagnostics": ["kernel compiled", "worker /data/b  2 h 0 min  28%", "acknowledges after sync"],
}
"""On each panel, in one line each, for a bookie with a ledger that is stuck."""


def test_every_panel_says_what_it_is_for() -> None:
    app = screen(Snapshot(1_000, in_limbo(), (limbo_job(),)))

    async def steps(app: Tui, pilot: Pilot[None]) -> None:
        for number, (name, title, _) in enumerate(PANELS, start=1):
            await pilot.press(str(number))
            await until(pilot, lambda name=name: all(word in text_of(app) for word in SAID[name]))
            await until(pilot, lambda: "Quit" in lines_of(app)[-1])  # the footer is made anew
            lines = lines_of(app)
            assert "10.0.0.1:3181" in lines[0]
            assert "LIMBO 17" in lines[0]
            assert f"{number} {title}" in lines[1]
            assert max(map(len, lines)) <= SMALL[0]

    watch(app, steps)


def test_a_process_that_ended_or_was_started_again_is_told_in_words() -> None:
    """The overview names such a worker; what a recording of an older bookie does not have is a dash."""
    status = healthy()
    supervisor, frontend, first, second, repair = status.processes
    first = replace(first, restarts=3, started_ms=NOW_MS - 5_000)
    second = Process("worker", second.name, second.pid, 2, False, second.disk)
    older = Process("frontend", frontend.name, frontend.pid, 0, True)
    disks = tuple(
        replace(disk, worker=worker)
        for disk, worker in zip(status.disks, (first, second), strict=True)
    )
    processes = (supervisor, older, first, second, repair)
    app = screen(Snapshot(1_000, replace(status, processes=processes, disks=disks)))

    async def steps(app: Tui, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "[X] worker /data/b             ended" in text_of(app))
        assert "[!] worker /data/a        3 restarts" in text_of(app)
        await pilot.press("2")
        await until(
            pilot,
            lambda: (
                "worker: up 5 s, cpu 31%, memory 85.0 MiB, restarts [!] 3, pid 102" in text_of(app)
            ),
        )
        await pilot.press("down")
        await until(
            pilot,
            lambda: "worker: [X] ended, cpu -, memory -, restarts [!] 2, pid 103" in text_of(app),
        )
        app.action_freeze()
        without = tuple(replace(disk, worker=None) for disk in disks)
        app.view.update(Snapshot(2_000, replace(status, disks=without)))
        app.panel.show(app.view)
        await until(pilot, lambda: "worker: none" in text_of(app))

    watch(app, steps)


def test_of_many_disks_the_worst_are_shown_and_the_screen_stays_whole() -> None:
    status = in_limbo(17, 9)
    disks = tuple(
        replace(status.disks[0], path=f"/data/{number}", disk=f"uuid-{number}")
        for number in range(20)
    )
    failed = replace(disks[19], state="failed", reason="EIO")
    app = screen(Snapshot(1_000, replace(status, disks=(*disks[:19], failed))))

    async def steps(app: Tui, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "[X] /data/19   failed: EIO" in text_of(app))
        assert "and 19 more, 0 of them not well: panel 2" in text_of(app)
        assert "[+] repair" in text_of(app)
        assert "→ bring back 10.0.0.2:3181" in text_of(app)
        await pilot.resize_terminal(*LARGE)
        await until(pilot, lambda: "[+] /data/18 " in text_of(app))
        assert "more, " not in text_of(app)

    watch(app, steps)


def test_help_names_every_key_of_the_panel_and_no_other() -> None:
    app = screen(Snapshot(1_000, healthy()))

    async def steps(app: Tui, pilot: Pilot[None]) -> None:
        await pilot.press("4", "question_mark")
        await until(pilot, lambda: "Set the speed limit of the job." in text_of(app))
        assert "Show only rows that contain a text." not in text_of(app)
        await pilot.press("escape")
        await until(pilot, lambda: "Set the speed limit" not in text_of(app))

    watch(app, steps, LARGE)


def test_what_changes_is_drawn_and_what_is_frozen_is_not_asked() -> None:
    script = Script(
        [Snapshot(1_000, healthy(0)), Snapshot(2_000, in_limbo()), Snapshot(3_000, in_limbo())]
    )
    app = Tui(script, wall_ms=lambda: 3_000, recordings=Path())

    async def steps(app: Tui, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "LIMBO 17" in lines_of(app)[0])
        assert app.view.history.adds_per_s[0] == 2_000.0
        await pilot.press("space")
        await until(pilot, lambda: "PAUSED" in lines_of(app)[0])
        taken = script.taken
        await asyncio.sleep(1.5)
        assert script.taken <= taken + 1
        await pilot.press("space")
        await until(pilot, lambda: script.taken > taken + 1)

    watch(app, steps)


def test_a_snapshot_that_comes_while_the_screen_is_removed_is_not_drawn() -> None:
    async def steps(app: Tui, pilot: Pilot[None]) -> None:
        await app.query(Card).remove()
        app._draw()

    watch(screen(Snapshot(1_000, healthy())), steps)


def test_a_bookie_that_is_down_is_shown_from_its_files() -> None:
    files = (DiskFiles("/data/a", "u", "not stopped cleanly", 50 << 30, 200 << 30, ""),)
    app = screen(Snapshot(1_000, None, (), "no bookie is running: nothing answers", files))

    async def steps(app: Tui, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "not stopped cleanly" in text_of(app))
        assert "NOT CONNECTED" in lines_of(app)[0]
        for number in range(2, len(PANELS) + 1):  # nothing on it needs a bookie that answers
            await pilot.press(str(number))
            await pilot.pause()

    watch(app, steps)


def test_a_terminal_that_is_too_small_says_so_and_recovers() -> None:
    app = screen(Snapshot(1_000, healthy()))

    async def steps(app: Tui, pilot: Pilot[None]) -> None:
        for size in ((20, 5), SMALL, (20, 5)):
            await pilot.resize_terminal(*size)
        await until(pilot, lambda: "too small" in text_of(app).replace("\n", " "))
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: "nothing is missing" in text_of(app))

    watch(app, steps)


def test_a_thousand_ledgers_sorted_and_filtered() -> None:
    app = screen(Snapshot(1_000, in_limbo(1_000, 1_000)))

    async def steps(app: Tui, pilot: Pilot[None]) -> None:
        await pilot.press("3")
        await until(pilot, lambda: "1,000 stuck, by state" in text_of(app))
        await pilot.press("s", "s", "s")
        await until(pilot, lambda: "1,000 stuck, by why" in text_of(app))
        await pilot.press("slash", *"777 entries")
        await until(pilot, lambda: "1,000 stuck, 1 shown" in text_of(app))
        assert app.panel.query_one(Table).row_count == 1
        await pilot.press("enter")
        assert not app.panel.query_one(Input).has_focus

    watch(app, steps)


def counting_lines(table: Table) -> list[int]:
    """The lines that it is asked for from now on."""
    lines: list[int] = []
    render_line = table.render_line

    def counted(y: int) -> Strip:
        lines.append(y)
        return render_line(y)

    table.render_line = counted  # type: ignore[method-assign]
    return lines


def test_of_a_thousand_ledgers_only_those_are_drawn_that_are_seen() -> None:
    status = in_limbo(1_000, 1_000)
    app = screen(Snapshot(1_000, status))

    async def steps(app: Tui, pilot: Pilot[None]) -> None:
        await pilot.press("3")
        await until(pilot, lambda: "1,000 stuck" in text_of(app))
        table = app.panel.query_one(Table)
        await until(pilot, lambda: table.row_count == 1_000)
        same = replace(status, limbo=replace(status.limbo, done=4))
        app.view.update(Snapshot(2_000, same))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(table, "refresh", pytest.fail)  # what is the same is not drawn again
            app.panel.show(app.view)
        lines = counting_lines(table)
        await pilot.press("end")
        await until(pilot, lambda: "1,000 entries are missing" in text_of(app))
        assert table.cursor_row == 999
        assert 0 < len(lines) <= 4 * SMALL[1]

    watch(app, steps)


def test_a_thousand_ledgers_in_limbo_of_which_few_are_stuck() -> None:
    """The status names those that are stuck, a hundred at most; the panel asks for all."""
    every = [LimboLedger(ledger, "/data/a") for ledger in range(1_000)]
    bookie = Staged(Snapshot(1_000, in_limbo(1_000, 2)), ledgers=every)
    app = Tui(bookie, wall_ms=lambda: 1_000, recordings=Path())

    async def steps(app: Tui, pilot: Pilot[None]) -> None:
        assert bookie.asked == 0  # while the panel is hidden
        await pilot.press("3")
        await until(pilot, lambda: "2 stuck, by state" in text_of(app))
        table = app.panel.query_one(Table)
        await until(pilot, lambda: table.row_count == 1_000)
        await pilot.press("slash", *"99")
        await until(pilot, lambda: "19 shown" in text_of(app))

    watch(app, steps)


def test_a_ledger_that_leaves_limbo_moves_nobody() -> None:
    """The cursor stays on its ledger and that where it is; no other part of the screen is laid out again."""
    every = [LimboLedger(ledger, "/data/a") for ledger in range(1_000)]
    first, second = (Snapshot(ms, in_limbo(left, 0)) for ms, left in ((1_000, 1_000), (2_000, 999)))
    bookie = Staged(first, ledgers=every)
    app = Tui(bookie, wall_ms=lambda: 1_000, recordings=Path())

    async def steps(app: Tui, pilot: Pilot[None]) -> None:
        await pilot.press("3")
        await until(pilot, lambda: app.panel_name == "limbo")
        table = app.panel.query_one(Table)
        await until(pilot, lambda: table.row_count == 1_000)
        await pilot.press(*["pagedown"] * 5)
        chosen, place = table.selected, table.cursor_row - table.scroll_y
        assert chosen is not None
        app.action_freeze()
        layouts: list[bool] = []
        refresh = table.refresh

        def counted(*regions: Region, layout: bool = False, **others: bool) -> Table:
            layouts.append(layout)
            refresh(*regions, layout=layout, **others)
            return table

        table.refresh = counted  # type: ignore[method-assign, assignment]
        bookie.ledgers = every[1:]
        app.view.update(second)
        app.panel.show(app.view)
        await until(pilot, lambda: table.row_count == 999)
        await pilot.pause()
        assert (table.selected, table.cursor_row - table.scroll_y) == (chosen, place)
        assert layouts
        assert not any(layouts)

    watch(app, steps)


def test_a_table_under_keys_and_clicks() -> None:
    table = Table(["what", "how"], id="rows", tail=True)

    def rows(first: int, last: int) -> list[Row]:
        return [(str(n), (f"row {n}", "x" * (n % 100))) for n in range(first, last)]

    class One(App[None]):
        selected = 0

        def compose(self) -> ComposeResult:
            yield table

        def on_table_row_selected(self) -> None:
            self.selected += 1

    async def go() -> None:
        app = One()
        async with app.run_test(size=(40, 12)) as pilot:
            assert table.selected is None
            table.show(rows(0, 50))
            await pilot.pause()
            assert table.selected == "49", "the tail is followed"
            await pilot.press("home", "up")
            assert (table.selected, table.scroll_y) == ("0", 0)
            await pilot.press("down", "down", "pagedown")
            assert table.selected == "12"
            table.show(rows(10, 60))
            assert table.selected == "12"
            table.show(rows(20, 30))
            assert table.selected == "22", "its row is gone: the one that is now there"
            await pilot.press("end", "down")
            table.show(rows(20, 31))
            await pilot.pause()
            assert table.selected == "30", "the tail again"
            await pilot.press("home")
            await pilot.click(Table, offset=(3, 4))
            assert table.selected == "23"
            await pilot.press("right", "right", "left", "left")
            table.show([("a", ("two  spaces and a\nline", "\N{CJK UNIFIED IDEOGRAPH-4E2D}[b]"))])
            await pilot.pause()
            assert "two spaces and a line" in "".join(s.text for s in table.render_line(1))
            table.show([])
            await pilot.pause()
            assert table.selected is None
            assert app.selected >= 8

    asyncio.run(go())


def test_events_without_end_are_bounded() -> None:
    app = screen(Snapshot(1_000, healthy()))

    async def steps(app: Tui, pilot: Pilot[None]) -> None:
        for number in range(2 * EVENTS_MAX):
            warning = StatusWarning("ab"[number % 2] * (number % 7 + 1), "")
            app.view.update(Snapshot(1_000 + number, replace(healthy(), warnings=(warning,))))
        assert len(app.view.events) == EVENTS_MAX
        await pilot.press("7")
        await until(pilot, lambda: "the newest 200" in text_of(app))

    watch(app, steps)


def test_a_storm_of_sizes() -> None:
    """As a terminal that is dragged sends SIGWINCH."""
    app = screen(Snapshot(1_000, in_limbo(1_000, 100)))

    async def steps(app: Tui, pilot: Pilot[None]) -> None:
        for number in range(2 * len(PANELS)):
            if number % 2 == 0:
                await pilot.press(str(number // 2 + 1))
            await pilot.resize_terminal(1 + number * 67 % 220, 1 + number * 23 % 70)
        await pilot.resize_terminal(*LARGE)
        await pilot.press("1")
        await until(pilot, lambda: "Safe?" in text_of(app))

    watch(app, steps)


def test_a_bookie_of_another_host_says_what_only_it_knows() -> None:
    bookie = Staged(Snapshot(1_000, healthy()))
    app = Tui(bookie, wall_ms=lambda: 1_000, recordings=Path())

    async def steps(app: Tui, pilot: Pilot[None]) -> None:
        for key, words in (
            ("5", "missing: the directory is empty"),
            ("6", "3 writable, 1 read-only, 1 no answer"),
            ("8", "bookie.toml:2"),
        ):
            await pilot.press(key)
            await until(pilot, lambda words=words: words in text_of(app))

    watch(app, steps)


def test_no_key_is_bound_twice_on_a_panel() -> None:
    for name, _, _ in PANELS:
        keys = [key.key for key in keys_of(name)]
        assert len(keys) == len(set(keys))


def test_hidden_panels_do_no_work() -> None:
    app = screen(Snapshot(1_000, healthy()))
    drawn: list[str] = []

    async def steps(app: Tui, pilot: Pilot[None]) -> None:
        for name, _, _ in PANELS:
            panel = app.query_one(f"#{name}")
            panel.show = lambda _view, name=name: drawn.append(name)  # type: ignore[attr-defined]
        await pilot.press("2")
        await until(pilot, lambda: "disks" in drawn)
        drawn.clear()
        await until(pilot, lambda: len(drawn) >= 2)
        assert set(drawn) == {"disks"}

    watch(app, steps)
