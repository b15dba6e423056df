"""The transcripts in tests/protocol/scenarios: clients and model bookies, step by step.

A line with ``>`` is a command, the indented lines below it are what happened. After a change of the
protocol run ``REWRITE_SCENARIOS=1 pytest tests/protocol/test_scenarios.py`` and read the diff.

    > cluster E WQ AQ [spare NAME …] [without fencing | without limbo]
    > CLIENT append TEXT | CLIENT close      the writer
    > CLIENT recover                         starts a recovery
    > deliver CLIENT TO [KIND]               TO (a bookie, metadata, placement) does what CLIENT has
                                             asked of it so far, and the answers arrive
    > lose CLIENT TO [KIND]                  none of it gets there
    > forget BOOKIE                          it starts on an empty disk, phase one included
    > check                                  is anything acknowledged cut off?
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bkbox.protocol.effects import Effect
from bkbox.protocol.events import AddsCompleted, Append, Close, ReadCompleted, describe
from bkbox.protocol.recovery import LedgerRecovery
from bkbox.protocol.writer import LedgerWriter
from tests.protocol.modelcluster import Actor, Cluster, lost_entries
from tests.protocol.notation import ledger, show, show_metadata

SCENARIOS = sorted(Path(__file__).with_name("scenarios").glob("*.txt"))
WRITER = "writer"


class Stage:
    """Plays commands and tells what happened."""

    def __init__(self) -> None:
        self.cluster = Cluster(ledger(1, 1, 1))
        self.actors: dict[str, Actor] = {}

    def command(self, text: str) -> list[str]:
        words = text.split()
        match words:
            case ["cluster", *sizes_and_options]:
                return self._build(sizes_and_options)
            case ["deliver" | "lose", client, to, *kind]:
                arrives = words[0] == "deliver"
                return self._deliver(client, to, " ".join(kind), arrives=arrives)
            case ["forget", name]:
                self.cluster.lose_everything(name)
                bookie = next(b for n, b in self.cluster.bookies.items() if n == name)
                marks = ["fenced"] * bookie.fenced + ["limbo"] * bookie.limbo
                return [f"{name} is empty: {', '.join(marks) or 'no marks'}"]
            case [client, "append", payload]:
                return self._told(client, self.actors[client].handle(Append((payload.encode(),))))
            case [client, "close"]:
                return self._told(client, self.actors[client].handle(Close()))
            case [client, "recover"]:
                machine = LedgerRecovery(self.cluster.metadata, self.cluster.version)
                self.actors[client] = Actor(machine)
                return self._told(client, self.actors[client].start())
            case ["check"]:
                return self._check()
        raise ValueError(f"no such command: {text}")

    def _build(self, words: list[str]) -> list[str]:
        sizes = [int(word) for word in words[:3]]
        options = words[3:]
        spares = tuple(word for word in options if word.startswith("b"))
        self.cluster = Cluster(
            ledger(*sizes),
            spares,
            fencing="fencing" not in options,
            limbo="limbo" not in options,
        )
        self.actors = {WRITER: Actor(LedgerWriter(self.cluster.metadata, self.cluster.version))}
        return [f"metadata: {show_metadata(self.cluster.metadata)}"]

    def _deliver(self, client: str, to: str, kind: str, *, arrives: bool) -> list[str]:
        actor = self.actors[client]
        lines = []
        for request in [r for r in actor.in_flight if r.to == to and r.text.startswith(kind)]:
            actor.in_flight.remove(request)
            event = self.cluster.carry_out(request) if arrives else self.cluster.no_answer(request)
            if isinstance(event, AddsCompleted | ReadCompleted):
                lines.append(f"{request.text}: {describe([(request.to, event.status)])}")
            else:
                lines.append(f"{to}, {request.text}: {type(event).__name__}")
            lines += self._told(client, actor.handle(event))
        return lines

    @staticmethod
    def _told(client: str, effects: list[Effect]) -> list[str]:
        return [f"{client} << {show(effect)}" for effect in effects]

    def _check(self) -> list[str]:
        acked = self.actors[WRITER].acked
        lost = lost_entries(self.cluster, acked)
        return [
            f"metadata: {show_metadata(self.cluster.metadata)}",
            f"acknowledged: {' '.join(map(str, acked)) or 'nothing'}",
            f"LOST: {' '.join(map(str, lost))}" if lost else "nothing acknowledged is lost",
        ]


def play(script: str) -> str:
    stage = Stage()
    lines: list[str] = []
    for line in script.splitlines():
        if line.startswith("> "):
            lines += [line, *(f"    {told}" for told in stage.command(line[2:]))]
        elif not line.startswith("    "):
            lines.append(line)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    script = path.read_text()
    happened = play(script)
    if os.environ.get("REWRITE_SCENARIOS"):
        path.write_text(happened)
    assert happened.splitlines() == script.splitlines()


def test_each_danger_is_shown_with_and_without_its_guard() -> None:
    """The guarded half of each pair loses nothing, the other one does: so the check can fail."""
    ends = {path.stem: path.read_text().rstrip().splitlines()[-1].strip() for path in SCENARIOS}
    unguarded = {stem for stem in ends if "_without_" in stem}
    assert {stem.split("_without_")[0] for stem in unguarded} == ends.keys() - unguarded
    for stem, end in ends.items():
        assert end.startswith("LOST: " if stem in unguarded else "nothing acknowledged is lost"), (
            stem
        )
