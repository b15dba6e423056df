"""Processes that are killed or stopped.

Each function takes the fault injector, the target host and a random generator, and returns True if it injected the
fault.
"""

from __future__ import annotations

import random

from proof.sim.faults.faults import Fault, Faults
from proof.sim.world.host import KILLED, Host


def keep_away(faults: Faults, host: Host, rng: random.Random) -> bool:
    """The operator does not restart it for a while: long enough for other bookies to replace it."""
    if not faults.crash_is_fine(host):
        return False
    host.should_run = False
    host.kill("SIGKILL, for a while")
    faults.later(rng.choice((5.0, 60.0, 300.0)) * rng.random(), faults.start_host, host)
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
    """Kills at the n-th change from now, of a worker or of the supervisor."""
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
