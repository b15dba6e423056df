"""The screen of a real bookie: while it runs, when it is killed, and what the recorder kept of it."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from pathlib import Path

import pytest
from bkbox_tui.app import Tui
from bkbox_tui.dialogs import Question
from bkbox_tui.explain import explained
from bkbox_tui.recording import read_recording
from bkbox_tui.snapshot import Snapshot
from bkbox_tui.sources import Bookie
from textual.widgets import Input

from bkbox.config import load as configuration
from bkbox.errors import NoSuchLedgerError
from tests.harness.fixtures import MakeBookie
from tests.harness.processes import bkbox
from tests.tui.screens import healthy, lines_of, screen, text_of
from tests.tui.test_screen import until


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def says(app: Tui, pattern: str) -> bool:
    return re.search(pattern, text_of(app)) is not None


def test_a_bookie_that_runs_and_then_is_killed(make_bookie: MakeBookie, tmp_path: Path) -> None:
    bookie = make_bookie().start()
    config = configuration.load(bookie.config, os.environ)
    app = Tui(Bookie.here(config, wall_ms), wall_ms=wall_ms, recordings=tmp_path)

    async def go() -> None:
        async with app.run_test(size=(120, 40)) as pilot:
            await until(pilot, lambda: "nothing is missing" in text_of(app))
            assert "connected" in lines_of(app)[0]
            for role in ("supervisor", "frontend|front-end 1", "repair", "2 workers"):
                cell = rf"\[\+\] ({role}) +\d+% +\d[\d.]+ MiB"
                await until(pilot, lambda cell=cell: says(app, cell))
            await pilot.press("2")
            worker = r"worker: up \d+ (s|min), cpu \d+%, memory \d[\d.]+ MiB, restarts 0, pid \d+"
            await until(pilot, lambda: says(app, worker))
            await pilot.press("w", "5")
            await until(pilot, lambda: "[+] cookies of disks" in text_of(app))
            assert "RECORDING" in lines_of(app)[0]
            await pilot.press("6")
            await until(pilot, lambda: f"{bookie.bookie_id} *  [+] writable" in text_of(app))
            await pilot.press("8")
            await until(pilot, lambda: "metadata_wait_s" in text_of(app))
            await pilot.press("6")
            bookie.kill()
            await until(pilot, lambda: f"{bookie.bookie_id} *  [X] down" in text_of(app))
            await pilot.press("1")
            await until(pilot, lambda: "NOT CONNECTED" in lines_of(app)[0])
            await until(pilot, lambda: "not stopped cleanly" in text_of(app))
            await pilot.press("w")
            await until(pilot, lambda: "RECORDING" not in lines_of(app)[0])

    asyncio.run(go())
    (recording,) = tmp_path.glob("bkbox-*.jsonl.gz")
    kept = list(read_recording(recording))
    assert kept[0].status is not None
    assert kept[-1].status is None


def test_a_bookie_that_hangs_is_not_called_well(make_bookie: MakeBookie, tmp_path: Path) -> None:
    bookie = make_bookie().start()
    assert bookie.process is not None
    app = Tui(
        Bookie.here(configuration.load(bookie.config, os.environ), wall_ms),
        wall_ms=wall_ms,
        recordings=tmp_path,
    )

    async def go() -> None:
        assert bookie.process is not None
        async with app.run_test(size=(120, 40)) as pilot:
            await until(pilot, lambda: lines_of(app)[0].startswith("[+]"))
            os.kill(bookie.process.pid, signal.SIGSTOP)
            try:
                await until(pilot, lambda: re.search(r"^\[\?\].*NO ANSWER", lines_of(app)[0]))
                await until(pilot, lambda: "the bookie does not answer" in text_of(app))
                assert lines_of(app)[0].startswith("[X]")
            finally:
                os.kill(bookie.process.pid, signal.SIGCONT)
            await until(pilot, lambda: lines_of(app)[0].startswith("[+]"))

    asyncio.run(go())


def test_a_ledger_is_explained_and_who_announces_himself_is_listed(
    make_bookie: MakeBookie, tmp_path: Path
) -> None:
    bookie = make_bookie(announce="true").start()
    words = ("ledger", "write", "--metadata", bookie.metadata, "-e", "1", "-w", "1", "-a", "1")
    ledger = int(bkbox(*words, "--keep-open", input="one\ntwo\n").stdout)
    source = Bookie.here(configuration.load(bookie.config, os.environ), wall_ms)
    text = explained(asyncio.run(source.explain(ledger)))
    assert f"else: bkbox ledger recover {ledger}" in text.splitlines()[0]
    assert "OPEN, ensemble 1, write quorum 1, ack quorum 1" in text
    assert f"entries 0 to 1 on {bookie.bookie_id}" in text
    assert f"[+] {bookie.bookie_id}: 2 entries, the last 1" in text
    with pytest.raises(NoSuchLedgerError):
        asyncio.run(source.explain(ledger + 1))

    app = Tui(source, wall_ms=wall_ms, recordings=tmp_path)

    async def go() -> None:
        async with app.run_test(size=(160, 40)) as pilot:
            await pilot.press("6")
            await until(pilot, lambda: "network" in text_of(app))
            listed = f"- {bookie.bookie_id}, in the list, bkbox "
            for _ in range(20):  # it may be announced a moment later
                if listed in text_of(app):
                    break
                await pilot.press("f5")
                await asyncio.sleep(2.5)
            assert listed in text_of(app)

    asyncio.run(go())


def test_recording_without_a_screen(make_bookie: MakeBookie, tmp_path: Path) -> None:
    bookie = make_bookie().start()
    file = tmp_path / "night.jsonl.gz"
    bkbox("tui", "--config", str(bookie.config), "--record", str(file), "--headless", "5")
    kept = list(read_recording(file))
    assert len(kept) >= 2
    assert all(snapshot.status is not None for snapshot in kept)


def test_a_dialog_wants_the_id_letter_by_letter() -> None:
    app = screen(Snapshot(1_000, healthy()))
    answers: list[str | None] = []

    async def go() -> None:
        async with app.run_test(size=(80, 24)) as pilot:
            app.push_screen(Question("End job 12?", must_be="12"), answers.append)
            await until(pilot, lambda: isinstance(app.screen, Question))
            await pilot.press("1", "enter")
            await until(pilot, lambda: "nothing was done" in text_of(app))
            assert answers == []
            app.screen.query_one(Input).value = "12"
            await pilot.press("enter")
            await until(pilot, lambda: answers == ["12"])

    asyncio.run(go())
