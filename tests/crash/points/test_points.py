"""A crash at every call that changes a file, on real files: nothing that was promised is lost.

A sample of the points is looked at, killed and with a lost host: every third under ``sync``, fewer of the other modes,
and of crashes during the start after a crash. ``TESTS_LONG=N`` looks at every point of all, with every kind of loss,
those that depend on chance N times each. ``CRASH_SEED`` is the seed of everything random.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from bkbox.storage.log.records import AckAfter
from tests.crash.points.enumeration import (
    Harness,
    Pick,
    State,
    Tally,
    every_loss,
    nothing_synced_later,
    one_loss,
    states,
)
from tests.crash.points.filesystem import Tree
from tests.crash.points.recorder import Recording, compiler
from tests.crash.points.scenarios import RECOVERY, SCENARIOS

LONG = int(os.environ.get("TESTS_LONG", "0"))
SEED = os.environ.get("CRASH_SEED", "1")
ONE_OF = {AckAfter.SYNC: 3, AckAfter.WRITE: 10, AckAfter.JOURNAL: 10}
"""How many points there are for each that the short run looks at."""

RECOVERIES = 12 * LONG or 1
"""How many states of each scenario are crashed once more while they are started."""
SEQUELS = [name for name in SCENARIOS if name != RECOVERY] if LONG else ["roll", "index-lost"]
PICK: Pick = every_loss(LONG) if LONG else one_loss
CASES = [
    pytest.param(name, mode, id=f"{name}-{mode}")
    for name, scenario in SCENARIOS.items()
    for mode in scenario.modes
    if name != RECOVERY
]

pytestmark = [
    pytest.mark.skipif(compiler() is None, reason="there is no C compiler to build shim.c with"),
    pytest.mark.timeout(300 + 7200 * LONG),
]


def tell(what: str, tally: Tally) -> None:
    """Say what was enumerated, and fail where a promise was broken."""
    print(f"{what}, seed {SEED}: {tally}")
    shown = "\n".join(map(str, tally.failures[:5]))
    assert not tally.failures, f"{what}, seed {SEED}: {tally}\n{shown}"


def sample(recording: Recording, mode: AckAfter) -> range:
    """The points that are looked at."""
    one_of = 1 if LONG else ONE_OF[mode]
    return range(random.Random(SEED).randrange(one_of), recording.points, one_of)


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_every_point(watched: Path, name: str, mode: AckAfter) -> None:
    harness = Harness(SCENARIOS[name], mode, watched)
    recording = harness.record()
    points = sample(recording, mode)
    tally = harness.enumerate(recording, PICK, SEED, points)
    tell(f"{name} {mode}: {recording.points} points in all", tally)
    assert tally.points == len(points)


@pytest.mark.parametrize("mode", list(AckAfter))
@pytest.mark.parametrize("name", SEQUELS)
def test_a_crash_during_the_start_after_a_crash(watched: Path, name: str, mode: AckAfter) -> None:
    rng = random.Random(f"{SEED} {name} {mode}")
    harness = Harness(SCENARIOS[name], mode, watched)
    recording = harness.record()
    left = [state for state in states(recording, one_loss, SEED) if state.promises.in_use]
    tally = Tally()
    for state in rng.sample(left, min(RECOVERIES, len(left))):
        again, recovery = harness.recovery_from(state)
        found = again.enumerate(recovery, PICK, SEED, sample(recovery, mode))
        for failure in found.failures:
            print(f"after {state.how} at point {state.point}: {failure}")
        tally += found
    tell(f"recovery after {name} {mode}", tally)


# ---- the model is the truth -----------------------------------------------------------------------------


def told(tree: Tree) -> Tree:
    """Without LevelDB's LOG, a stream that is not followed."""
    return {path: data for path, data in tree.items() if not Path(path).name.startswith("LOG")}


def found_in(folder: Path) -> Tree:
    return {
        str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes()
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("name", ["roll", "clean-stop"])
def test_what_a_real_kill_leaves_is_what_was_foreseen(watched: Path, name: str) -> None:
    rng = random.Random(SEED)
    harness = Harness(SCENARIOS[name], AckAfter.JOURNAL, watched)
    calls = [call for call in harness.record().calls if call.kind != "N"]
    writes = [point for point, call in enumerate(calls) if call.kind == "W"]
    for how, done in (("before", 0), ("after", 1), ("700", 1)):
        for point in rng.sample(writes if how == "700" else range(len(calls)), 1 + 10 * LONG):
            killed = harness.record(kill=f"{point} {how}")
            assert killed.points - 1 - point in {0, done}, "it is not the same every time"
            volume, promises = killed.at_the_end()
            tree = volume.written()
            assert told(found_in(watched)) == told(tree)
            state = State(point, f"killed {how}", None, tree, promises)
            assert harness.judge(state, rng) == (None, False)


# ---- the harness notices what is wrong ------------------------------------------------------------------


def losses(watched: Path, name: str, mode: AckAfter = AckAfter.SYNC, **fault: str) -> list[str]:
    harness = Harness(SCENARIOS[name], mode, watched)
    tally = harness.enumerate(harness.record(**fault), nothing_synced_later, SEED)
    print(f"{name} {mode} {fault}: {tally}")
    return [failure.text for failure in tally.failures]


def test_a_drive_that_only_says_that_it_synced_is_noticed(watched: Path) -> None:
    assert losses(watched, "add", lie="data")


def test_folders_that_are_not_synced_are_noticed(watched: Path) -> None:
    assert losses(watched, "roll", lie="names")


def test_an_acknowledgement_before_the_sync_is_noticed(watched: Path) -> None:
    found = losses(watched, "fence", fault="ack")
    assert any("denied" in text for text in found)
    assert any("fence" in text for text in found)
    assert any("LAC" in text for text in found)


def test_a_marker_that_is_cleared_too_early_is_noticed(watched: Path) -> None:
    found = losses(watched, "clean-stop", AckAfter.WRITE, fault="clean")
    assert any("no dirty marker says why" in text for text in found)  # so that nothing is denied
