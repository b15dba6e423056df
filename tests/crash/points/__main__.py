"""Enumerates crash points by hand, or looks at one again that a test has named:

    python -m tests.crash.points [SCENARIO [MODE]] [--seed SEED] [--point POINT] [--rounds N | --one]

Without a scenario all of them, and all commands (commands.py), in all their modes. Ends with 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from pathlib import Path

from bkbox.storage.log.records import AckAfter
from tests.crash.points.commands import COMMANDS, Command, Operator
from tests.crash.points.enumeration import Harness, Tally, every_loss, one_loss
from tests.crash.points.scenarios import RECOVERY, SCENARIOS
from tests.harness.processes import free_port

LISTEN = f"127.0.0.1:{free_port()}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.points")
    names = [name for name in SCENARIOS if name != RECOVERY]
    parser.add_argument("scenario", nargs="?", choices=[*names, *COMMANDS])
    parser.add_argument("mode", nargs="?", choices=[mode.value for mode in AckAfter])
    parser.add_argument("--seed", default="1")
    parser.add_argument("--point", type=int)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--one", action="store_true", help="one kind of loss at each point")
    parser.add_argument("--dir", help="where to make the folders", default="/dev/shm")
    chosen = parser.parse_args()
    pick = one_loss if chosen.one else every_loss(chosen.rounds)
    only = None if chosen.point is None else [chosen.point]
    logging.disable()  # what bookies say of damaged disks is no news here
    total, began = Tally(), time.monotonic()
    print("| scenario | ack_after | points | states | index rebuilt | failures | states/s |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in [chosen.scenario] if chosen.scenario else [*names, *COMMANDS]:
        for mode in [AckAfter(chosen.mode)] if chosen.mode else AckAfter:
            with (
                tempfile.TemporaryDirectory(dir=chosen.dir, prefix="bkbox-points-") as folder,
                tempfile.TemporaryDirectory() as side,
            ):
                watched = Path(folder).resolve()
                of: Harness | Command
                if name in COMMANDS:
                    of = COMMANDS[name](Operator(watched, Path(side), mode, LISTEN))
                else:
                    of = Harness(SCENARIOS[name], mode, watched)
                start = time.monotonic()
                tally = of.enumerate(of.record(), pick, chosen.seed, only)
                _row(name, mode, tally, time.monotonic() - start)
                total += tally
    _row("all", "", total, time.monotonic() - began)
    return 1 if total.failures else 0


def _row(name: str, mode: str, tally: Tally, seconds: float) -> None:
    rate = tally.states / seconds
    cells = (
        name,
        mode,
        tally.points,
        tally.states,
        tally.rebuilt,
        len(tally.failures),
        f"{rate:.0f}",
    )
    print("|", " | ".join(map(str, cells)), "|", flush=True)
    for failure in tally.failures[:5] if name != "all" else ():
        print(f"    {failure}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
