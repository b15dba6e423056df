"""Processes that are killed or stopped.

Each takes the ``Faults`` that carries it out, the host that the fault is about, and a random generator; it returns
whether it was done.
"""

from __future__ import annotations

import random

from proof.sim.faults.faults import Fault, Faults
from proof.sim.world.host import KILLED, Host


def keep_away(faults: Faults, host: Host, rng: random.Random) -> bool:
    """Its operator lets it be for a while: long enough for others to take its place."""
    if not faults.crash_is_fine(host):
        return False
    host.wanted = False
    host.kill("SIGKILL, for a while")
    faults.later(rng.choice((5.0, 60.0, 300.0)) * rng.random(), faults.bring_back, host)
    return True


def kill_worker(faults: Faults, host: Host, rng: random.Random) -> bool:
    workers = [worker for worker in host.workers.values() if not worker.process.dead]
    if not workers or not faults.crash_is_fine(host):
        return False
    rng.choice(workers).process.die(KILLED)
    return True


def kill_frontend(faults: Faults, host: Host, rng: random.Random) -> bool:
    if host.frontend is None:
        return False
    host.frontend.process.die(KILLED)
    return True


def kill_repair(faults: Faults, host: Host, rng: random.Random) -> bool:
    found = [each for each in host.processes if each.name.endswith("repair") and not each.dead]
    for process in found:
        process.die(KILLED)
    return bool(found)


def kill_in_write(faults: Faults, host: Host, rng: random.Random) -> bool:
    """A worker's, or the supervisor's, n-th change from now."""
    if host.supervisor is None or not faults.crash_is_fine(host):
        return False
    workers = list(host.workers.values())
    if workers and rng.random() < 0.7:
        rng.choice(workers).files.crash_at(rng.randint(1, 40))
    else:
        host.kill("SIGKILL, and the next start is killed, too")
        host.crash_next_start = rng.randint(1, 25)
    return True


def stop_bookie(faults: Faults, host: Host, rng: random.Random) -> bool:
    host.stop()
    return True


PROCESS_FAULTS: dict[str, Fault] = {
    "kill a bookie": Faults.kill_bookie,
    "keep a bookie away": keep_away,
    "kill a worker": kill_worker,
    "kill a front-end": kill_frontend,
    "kill a repair worker": kill_repair,
    "kill in the middle of a write": kill_in_write,
    "stop a bookie": stop_bookie,
}
