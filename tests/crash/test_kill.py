"""SIGKILL of each kind of process, at seeded points under load: nothing that was acknowledged is
lost, in any mode, and nothing is denied meanwhile.

``CRASH_POINTS`` is the number of points for each kind of strike and each mode; ``CRASH_SEED``
chooses the seeds.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest

from tests.crash.bookie import CrashBookie
from tests.crash.load import BROKEN, Load, WrongCrashClass
from tests.crash.losthost import HostLoss
from tests.harness.waiting import wait_for

POINTS = int(os.environ.get("CRASH_POINTS", "1"))
SEED = int(os.environ.get("CRASH_SEED", "1"))
MODES = ("sync", "write", "journal")
SAMPLE = 200


@pytest.fixture
def bookie(tmp_path: Path) -> Iterator[CrashBookie]:
    bookie = CrashBookie(tmp_path)
    yield bookie
    bookie.ensure_gone()


@pytest.mark.timeout(240 + 60 * POINTS)
@pytest.mark.parametrize("ack_after", MODES)
def test_a_kill_loses_nothing(bookie: CrashBookie, ack_after: str) -> None:
    bookie.init_for(ack_after).start_again()
    seed = f"{SEED}-{ack_after}"
    rng = random.Random(seed)
    strikes = STRIKES * POINTS
    rng.shuffle(strikes)
    with closing(Load(bookie.port, rng.getrandbits(32))) as load:
        for point, strike in enumerate(strikes):
            try:
                load.run(rng.randrange(10, 300))
                load.run_for(rng.randrange(3000) / 1e6)
                strike(bookie, rng, load)
                load.verify(sample=SAMPLE)
            except AssertionError as error:
                where = f"seed {seed!r}, point {point} of {len(strikes)}, {strike.__name__}"
                error.add_note(f"{where}\n{bookie.stderr[-3000:]}")
                raise
        load.run(100)
        load.drain()
        load.verify()
        assert bookie.stop() == 0, bookie.stderr[-3000:]
        bookie.start_again()
        assert bookie.classes() == {"clean"}
        load.verify()
    print(f"{seed}: {len(strikes)} points: {load.told()}")


def strike_all(bookie: CrashBookie, rng: random.Random, load: Load) -> None:
    """All processes; now and then once more during the start, or only the supervisor, whose
    children die with it.
    """
    if rng.random() < 0.2:
        assert bookie.process is not None
        bookie.process.kill()
    bookie.kill()
    while rng.random() < 0.25:
        bookie.launch()
        time.sleep(rng.random() * 1.2)
        bookie.kill()
    bookie.start_again()
    if (found := bookie.classes()) != {"process crash"}:
        raise WrongCrashClass(f"a killed bookie came to {found}")


def strike_frontend(bookie: CrashBookie, rng: random.Random, load: Load) -> None:
    strike_one_of("frontend", bookie, rng, load)


def strike_worker(bookie: CrashBookie, rng: random.Random, load: Load) -> None:
    strike_one_of("worker", bookie, rng, load)


def strike_repair(bookie: CrashBookie, rng: random.Random, load: Load) -> None:
    strike_one_of("repair", bookie, rng, load)


def strike_one_of(role: str, bookie: CrashBookie, rng: random.Random, load: Load) -> None:
    """One process of a role, now and then all of them."""
    running = bookie.pids(role)
    victims = running if rng.random() < 0.2 else [rng.choice(running)]
    kill(victims)
    load.run_for(rng.choice((0.0, 0.005, 0.05)))
    wait_for(
        lambda: len(set(bookie.pids(role)) - set(victims)) == len(running),
        f"the {role} to be started again",
        pause=0.01,
    )


def strike_children(bookie: CrashBookie, rng: random.Random, load: Load) -> None:
    """Several within a fraction of a second, also those that are being started for the ones that
    were killed.
    """
    for _ in range(rng.randrange(2, 6)):
        victims = children(bookie)
        kill(rng.sample(victims, min(len(victims), rng.randrange(1, 4))))
        load.run_for(rng.choice((0.0, 0.01, 0.1, 0.3)) * rng.random())
    wait_for(lambda: whole(bookie), "every child to be there again", pause=0.02)


STRIKES = [strike_all, strike_frontend, strike_worker, strike_repair, strike_children]


def children(bookie: CrashBookie) -> list[int]:
    """Whatever runs now, started or starting."""
    assert bookie.process is not None
    return [child.pid for child in psutil.Process(bookie.process.pid).children()]


def whole(bookie: CrashBookie) -> bool:
    """Whether every child runs and every disk is in service."""
    document = bookie.status()
    running = all(process["running"] for process in document["processes"])
    return running and all(disk["state"] == "in service" for disk in document["disks"])


def kill(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_a_write_that_was_not_made_is_noticed(bookie: CrashBookie) -> None:
    """The canary: where a worker holds back what it should have written, a kill loses it."""
    side = HostLoss([], bookie.root / "side")
    side.begin()
    bookie.environment |= side.environment(lie="write")
    bookie.init_for("write").start_again()
    with closing(Load(bookie.port, 5)) as load, pytest.raises(BROKEN):
        for point in range(30):  # at most: the first one most often does
            load.run(100)
            strike_all(bookie, random.Random(point), load)
            load.verify(patience_s=1.0)
