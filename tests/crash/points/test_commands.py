"""Crashes at every call of `bkbox init`, `cookie repair`, `index rebuild` and a whole `bkbox run`; see commands.py.

A sample of the points; with ``TESTS_LONG`` all of them, and every kind of loss. ``CRASH_SEED`` as in test_points.py.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bkbox.storage.log.records import AckAfter
from tests.crash.points.commands import COMMANDS, Operator, init
from tests.crash.points.filesystem import Loss, Order
from tests.crash.points.recorder import compiler
from tests.crash.points.test_points import LONG, PICK, SEED, tell
from tests.harness.processes import free_port

ONE_OF = {"init": 8, "add-disk": 12, "replace-disk": 8, "rebuild": 10, "run": 14}
MODES = list(AckAfter) if LONG else [AckAfter.JOURNAL]
pytestmark = [
    pytest.mark.skipif(compiler() is None, reason="there is no C compiler to build shim.c with"),
    pytest.mark.timeout(300 + 7200 * LONG),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", COMMANDS)
def test_every_point(watched: Path, tmp_path: Path, name: str, mode: AckAfter) -> None:
    operator = Operator(watched, tmp_path, mode, f"127.0.0.1:{free_port()}")
    command = COMMANDS[name](operator)
    recording = command.record()
    step = 1 if LONG else ONE_OF[name]
    points = range(random.Random(f"{SEED} {name}").randrange(step), recording.points, step)
    tally = command.enumerate(recording, PICK, SEED, points)
    tell(f"{name} {mode}: {recording.points} points in all", tally)


@pytest.mark.parametrize("mode", list(AckAfter))
def test_disks_in_a_new_folder_survive_the_host_once_init_has_ended(
    watched: Path, tmp_path: Path, mode: AckAfter
) -> None:
    """Found by losing all names that were not synced: that of the new folder was not, and all disks went with it."""
    command = init(Operator(watched, tmp_path, mode))
    recording = command.record()
    names_lost = iter((Loss(Order.SYNCED, 1), Loss(Order.SYNCED, 0)))
    last = [recording.points - 1]
    tell("the end of init", command.enumerate(recording, lambda _rng: names_lost, SEED, last))


def test_an_init_that_was_killed_can_be_given_again(watched: Path, tmp_path: Path) -> None:
    """Found by killing it while it prepared a disk: it refused its own half-made disks as those of somebody else."""
    command = init(Operator(watched, tmp_path, AckAfter.SYNC))
    recording = command.record()
    calls = [call for call in recording.calls if call.kind != "N"]
    made = [n for n, call in enumerate(calls) if call.kind in "CR" and "disk1" in call.path]
    tally = command.enumerate(recording, lambda _rng: iter(()), SEED, [n + 1 for n in made])
    tell("init, killed after each name on its first disk", tally)
