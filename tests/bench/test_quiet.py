"""Whether a machine is quiet: what computes is found in /proc, waited for, and in the end refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.bench import quiet
from tests.bench.quiet import DisturbedError, Process, QuietMachine, Snapshot, disturbers

OWN = 100


def machine(at: float, **cpu_s: tuple[float, float]) -> Snapshot:
    """init, a shell below it, the benchmark below that with a bookie, and a build beside the shell; CPU seconds of each
    and of its children that have ended."""
    parents = {"init": 0, "shell": 1, "own": 50, "bookie": OWN, "build": 1}
    pids = {"init": 1, "shell": 50, "own": OWN, "bookie": 101, "build": 70}
    return Snapshot(
        at,
        {
            pids[name]: Process(parent, 5, name, *cpu_s.get(name, (0.0, 0.0)))
            for name, parent in parents.items()
        },
    )


def test_what_the_benchmark_uses_disturbs_nothing() -> None:
    after = machine(10.0, own=(9.0, 3.0), bookie=(9.0, 0.0))
    assert disturbers(machine(0.0), after, OWN) == []


def test_orphans_of_the_benchmark_end_as_children_of_init() -> None:
    assert disturbers(machine(0.0), machine(10.0, init=(0.0, 9.0), shell=(0.0, 9.0)), OWN) == []


def test_others_are_named_the_busiest_first() -> None:
    after = machine(10.0, build=(1.0, 7.0), init=(2.0, 0.0))
    found = disturbers(machine(0.0), after, OWN)
    assert [(each.pid, each.command) for each in found] == [(70, "build"), (1, "init")]
    assert str(found[0]) == "pid 70, build: 80% of a processor"
    assert disturbers(machine(0.0), machine(10.0, build=(0.9, 0.0)), OWN) == []


def test_a_pid_that_is_used_again_is_another_process() -> None:
    before = Snapshot(0.0, {7: Process(1, 3, "old", 500.0, 0.0)})
    after = Snapshot(1.0, {7: Process(1, 4, "new", 0.5, 0.0)})
    assert [each.share for each in disturbers(before, after, OWN)] == [0.5]


class Machine:
    """One on which a build computes at the times at which it is told to, in virtual time."""

    def __init__(self, busy: Iterator[bool]) -> None:
        self.now = 0.0
        self.build_s = 0.0
        self.busy = busy
        self.measured = 0

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.build_s += seconds if next(self.busy) else 0.0

    def measure(self) -> int:
        self.sleep(10.0)
        self.measured += 1
        return self.measured

    def watched(self, *, strict: bool) -> QuietMachine:
        return QuietMachine(
            strict=strict,
            own=OWN,
            sleep=self.sleep,
            clock=lambda: self.now,
            take=lambda: machine(self.now, build=(self.build_s, 0.0)),
        )


def test_a_measurement_waits_for_quiet_and_a_disturbed_one_is_repeated() -> None:
    #          before       measured  before  measured, after  before  measured, after
    there = Machine(iter([True, True, False, True, False, False, True, False, False, False]))
    assert there.watched(strict=True).measure("a round", there.measure) == 3


def test_after_some_disturbed_measurements_it_refuses() -> None:
    there = Machine(iter([False, True] * 20))
    with pytest.raises(DisturbedError, match="disturbed 4 times, last by pid 70, build: 100%"):
        there.watched(strict=True).measure("a round", there.measure)
    assert there.measured == quiet.REPEATS + 1


def test_the_wait_for_quiet_has_a_bound() -> None:
    there = Machine(iter([True] * 1000))
    with pytest.raises(DisturbedError, match=r"wait for a quiet machine.*pid 70, build"):
        there.watched(strict=True).measure("a round", there.measure)
    assert there.measured == 0
    assert quiet.WAIT_S <= there.now <= quiet.WAIT_S + 1


def test_without_a_report_it_only_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    there = Machine(iter([True]))
    assert there.watched(strict=False).measure("a round", there.measure) == 1
    assert "a round was disturbed by pid 70, build" in capsys.readouterr().err


def test_a_process_that_computes_is_found_in_proc() -> None:
    """Seen from a process that only sleeps, and is no relation of it."""
    burn = [sys.executable, "-c", "while True: pass"]
    with subprocess.Popen(["sleep", "600"]) as own, subprocess.Popen(burn) as busy:
        try:
            before = quiet.snapshot()
            while True:
                after = quiet.snapshot()
                if after.processes[busy.pid].own_s - before.processes[busy.pid].own_s >= 0.1:
                    break
            used = after.processes[busy.pid].own_s - before.processes[busy.pid].own_s
            late = Snapshot(before.at + used, after.processes)
            found = {each.pid: each for each in disturbers(before, late, own.pid)}
            assert found[busy.pid].share == pytest.approx(1.0)
            assert "while True" in found[busy.pid].command
            assert busy.pid not in {each.pid for each in disturbers(before, late, busy.pid)}
        finally:
            busy.kill()
            own.kill()
