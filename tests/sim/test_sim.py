"""The simulator: seeds hold, runs can be repeated exactly, and what is broken is noticed and explained.

The seed of the short run is that of ``SIM_SEED``, or drawn from the commit; it is printed (tests/conftest.py).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator, Sequence

import pytest

from proof.sim.mutations.mutation_coverage import catches
from proof.sim.mutations.safety_mutations import BREAKS, BY_NAME
from proof.sim.plan.schedule import Action, Plan, plan_of
from proof.sim.run.shrink import shortened, shrink
from proof.sim.run.simulation import Outcome, run
from proof.sim.run.soak import Tally, soak
from tests.harness.seeds import seed_of_the_commit

pytestmark = pytest.mark.usefixtures("nobody_is_left")

SHORT_RUN_CPU_S = 8.0

QUICKLY_CAUGHT = (
    "no-phase-one",
    "closed-not-marked",
    "repair-without-recovery",
    "two-homes",
    "no-write-back",
    "fence-before-sync",
    "recovery-reads-do-not-fence",
    "named-without-copies",
    "active-not-marked",
    "older-index-taken",
    "store-from-the-past-taken",
    "no-generations",
    "marker-left-at-stop",
)
"""Those that the first few seeds notice; the table of docs/verification.md has all."""

CAUGHT = QUICKLY_CAUGHT if "TESTS_LONG" in os.environ else QUICKLY_CAUGHT[::3]

PROGRAM = """
import zlib
from proof.sim.run.simulation import run
from proof.sim.plan.schedule import plan_of
outcome = run(plan_of({seed}), traced=True)
print(outcome.events, zlib.crc32(repr(outcome.trace).encode()))
"""


def small_plans(first: int) -> Iterator[Plan]:
    """Those of the next seeds that take little time."""
    return (plan for plan in map(plan_of, range(first, first + 200)) if len(plan.actions) <= 120)


def trace_of(outcome: Outcome) -> str:
    assert outcome.trace is not None
    return "\n".join(f"{when:10.4f}  {who:22}  {what}" for when, who, what in outcome.trace)


def test_the_seeds_of_this_commit_hold(capsys: pytest.CaptureFixture[str]) -> None:
    first = seed_of_the_commit()
    began = time.process_time()
    tally = Tally()
    failure = soak(first, lambda _done: time.process_time() - began < SHORT_RUN_CPU_S, tally)
    with capsys.disabled():
        print(f"\nbkbox sim: seeds from {first} on, {tally.seeds} of them, {tally.crashes} crashes")
    assert failure is None, f"bkbox sim --seed {failure.plan.seed}: {failure.outcome.violation}"


@pytest.mark.parametrize("seed", [1, 2])
def test_a_run_can_be_repeated_in_another_process(seed: int) -> None:
    said = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM.format(seed=seed)],
            env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for hash_seed in (1, 2)
    }
    outcome = run(plan_of(seed), traced=True)
    said.add(f"{outcome.events} {zlib.crc32(repr(outcome.trace).encode())}\n")
    assert len(said) == 1


def test_a_trace_changes_nothing() -> None:
    plan = plan_of(1)
    assert run(plan).events == run(plan, traced=True).events


def test_a_broken_cluster_is_noticed_and_explained_in_few_actions() -> None:
    with BY_NAME["no-limbo"].applied():
        plan, violation = next(
            (plan, outcome.violation)
            for plan in small_plans(5001)
            if (outcome := run(plan)).violation is not None
        )
        assert violation is not None
        shorter = shrink(plan, violation.name, lambda tries: tries < 40)
        outcome = run(shorter, traced=True)
    assert len(shorter.actions) < len(plan.actions) / 3
    assert outcome.violation is not None
    assert outcome.violation.name == violation.name
    assert "VIOLATED" in trace_of(outcome)
    assert "FAULT" in trace_of(outcome)


def test_shrinking_finds_the_two_that_matter() -> None:
    plan = plan_of(6)
    culprits = set(plan.actions[3:5])
    found = shortened(plan.actions, lambda actions: culprits <= set(actions), lambda _: True)
    assert set(found) == culprits


def test_shrinking_ends_when_it_is_told_to() -> None:
    plan = plan_of(6)
    tried: list[int] = []

    def fails(actions: Sequence[Action]) -> bool:
        tried.append(len(actions))
        return False

    assert shortened(plan.actions, fails, lambda tries: tries < 3) == plan.actions
    assert len(tried) == 3


def test_a_client_that_attacks_runs_in_its_own_process() -> None:
    """Found by seed 20018: the client was made by the one whose writer it attacked, and its requests went by the other
    process."""
    plan = plan_of(1)
    duels = [Action(at, "duel", "client0", at) for at in range(5, 65, 5)]
    writes = [Action(70.0 + n, "write", name, n) for n, name in enumerate(plan.clients)]
    outcome = run(plan.with_actions((*duels, *writes)))
    assert outcome.violation is None, str(outcome.violation)


def test_a_restart_after_trouble_is_no_loss_that_was_not_allowed_for() -> None:
    """Found by seed 73: a bookie of strict starts had got over its trouble, and was restarted for it when another one
    had trouble: two in limbo, where an ack quorum is two."""
    plan = plan_of(73)
    some = ("fail a sync", "lose a host", "write")
    actions = [each for each in plan.actions if 3287 < each.at < 3313 and each.kind in some]
    assert len(actions) == 7
    outcome = run(plan.with_actions(tuple(actions)))
    assert outcome.violation is None, str(outcome.violation)


@pytest.mark.parametrize(
    "seed",
    [
        # A disk that was lost was swapped, and came back in the place of the one that had replaced it: no bookie takes
        # such a disk, as it should.
        20270171,
        # A kill that waited for a worker's next change counted for over, and came when another bookie had trouble.
        20261862,
        # Bits flipped in what became durable with a sync that had been begun before it was appended: nobody can know.
        315136064927,
    ],
)
def test_what_was_the_simulators_own_mistake(seed: int) -> None:
    outcome = run(plan_of(seed))
    assert outcome.violation is None, str(outcome.violation)


def test_a_write_that_fails_at_the_begin_of_a_sync_ends_no_worker() -> None:
    """Found by this seed: where a sync fills the log ahead, an error of the disk ended the worker."""
    outcome = run(plan_of(982203622414))
    assert outcome.violation is None, str(outcome.violation)


def test_there_are_enough_breaks_and_each_says_what_it_is() -> None:
    assert len(BREAKS) >= 30
    assert len(BY_NAME) == len(BREAKS)
    for each in BREAKS:
        with each.applied():
            pass


@pytest.mark.parametrize("name", CAUGHT)
def test_a_break_is_caught(name: str) -> None:
    (found,) = catches([name], first=1, seeds=60, jobs=1)
    assert found.violation is not None
