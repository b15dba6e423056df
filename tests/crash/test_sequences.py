"""Short sequences of operations, struck at every change: nothing that was committed is lost, nothing that failed is
taken for done.

As many of one to three as fit into some seconds, drawn by ``CRASH_SEED``. ``TESTS_LONG``: all of one and two;
``python -m tests.crash.sequences`` takes all of three.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator

import pytest

from bkbox.storage.disk import replay
from bkbox.storage.log.records import AckAfter
from proof.sim.mutations.safety_mutations import BY_NAME
from proof.sim.patching import replaced
from tests.crash.sequences import Tally, sequences, strike_all

LONG = int(os.environ.get("TESTS_LONG", "0"))
SEED = os.environ.get("CRASH_SEED", "1")
SAMPLE_CPU_S = 2.0
NOTICED = (
    ("ack-before-sync", AckAfter.SYNC, "add"),
    ("fence-before-sync", AckAfter.WRITE, "fence"),
    ("checkpoint-before-sync", AckAfter.SYNC, "checkpoint"),
    ("journal-removed-too-early", AckAfter.JOURNAL, "checkpoint"),
    ("fsync-error-ignored", AckAfter.SYNC, "add"),
    ("states-not-kept", AckAfter.WRITE, "fence"),
    ("no-dirty-marker", AckAfter.WRITE, "add"),
)
"""What is switched off, and the operation that shows it."""


def tell(what: str, tally: Tally) -> None:
    shown = "\n".join(tally.failures[:5])
    counts = f"{tally.sequences} sequences, {tally.points} points, {tally.states} states"
    print(f"{what}: {counts}, {len(tally.failures)} failures")
    assert not tally.failures, f"{what}: {counts}, {len(tally.failures)} failures\n{shown}"


@pytest.mark.parametrize("mode", list(AckAfter))
def test_sequences_of_up_to_three(mode: AckAfter) -> None:
    chosen = list(sequences(2 if LONG else 3))
    random.Random(f"{SEED} {mode}").shuffle(chosen)
    began = time.process_time()

    def in_time() -> Iterator[tuple[str, ...]]:
        for names in chosen:
            if not LONG and time.process_time() > began + SAMPLE_CPU_S:
                return
            yield names

    tell(f"{mode.value}, seed {SEED}", strike_all(in_time(), [mode], 1, SEED))


FAILED_SYNC = [("write again",), ("checkpoint",)]


@pytest.mark.parametrize("names", FAILED_SYNC)
def test_what_a_failed_sync_left_in_memory_is_not_taken_for_durable(names: tuple[str, ...]) -> None:
    """Found here: the start after a failed sync read from memory what had never come to the disk, ended limbo with it,
    and the next loss of the host took it."""
    tell("failed syncs", strike_all([names], [AckAfter.SYNC], 1, "1"))
    with replaced((replay, "distrust_memory", lambda _files, _path: None)):
        assert strike_all([names], [AckAfter.SYNC], 1, "1").failures


@pytest.mark.parametrize("mode", list(AckAfter))
def test_an_end_of_limbo_that_fails_leaves_the_ledger_in_limbo_or_ends_it(mode: AckAfter) -> None:
    """At every change of it, whatever fails there: the entries that were copied before are there either way."""
    tell("the end of limbo", strike_all([("limbo", "add", "fence")], [mode], 2, SEED))


@pytest.mark.parametrize(("name", "mode", "operation"), NOTICED)
def test_what_is_broken_is_noticed(name: str, mode: AckAfter, operation: str) -> None:
    with BY_NAME[name].applied():
        assert strike_all([(operation,)], [mode], 2, SEED).failures
