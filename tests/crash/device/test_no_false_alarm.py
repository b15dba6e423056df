"""What loses nothing is not taken for a loss: process kills, also during starts and stops, clean restarts, and remounts
by an operator who stopped the bookie first. No ledger gets into limbo, none is fenced, and no disk is a host crash.

``CRASH_KILLS``, ``CRASH_RESTARTS`` and ``CRASH_REMOUNTS``: how many of each; 200, 50 and 20 are the long form.
"""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.crash.device.blockdevice import IMAGE_BYTES, BlockDevice, missing
from tests.crash.device.campaign import MODES
from tests.crash.device.checker import CheckedLoad, Tally
from tests.crash.device.host import HostedBookie

KILLS = int(os.environ.get("CRASH_KILLS", "2"))
RESTARTS = int(os.environ.get("CRASH_RESTARTS", "2"))
REMOUNTS = int(os.environ.get("CRASH_REMOUNTS", "1"))
SEED = os.environ.get("CRASH_SEED", "1")
LEDGERS = 40
SIZE = IMAGE_BYTES + (KILLS + RESTARTS + REMOUNTS) * (16 << 20)

pytestmark = pytest.mark.skipif(missing() != "", reason=f"no block device: {missing()}")


class Alarms:
    """A loaded bookie on a device, and what it says after each of its starts."""

    def __init__(self, bookie: HostedBookie, mode: str) -> None:
        self.rng = random.Random(f"{SEED}-{mode}")
        self.bookie = bookie
        self.tally = Tally()
        self._next = 1
        self.load = CheckedLoad(
            bookie.port, self.rng.getrandbits(32), self.tally, self._new_ledgers()
        )

    def _new_ledgers(self) -> range:
        made = range(self._next, self._next + LEDGERS)
        self._next += LEDGERS
        self.bookie.name_ledgers(made)
        return made

    def work(self) -> None:
        self.load.provide(self._new_ledgers())
        if self.rng.random() < 0.3:
            self.load.turn_over()
        self.load.run_for(self.rng.uniform(0.02, 0.3))

    def kill(self) -> None:
        """Now and then as it stops; and once more, now and then, as it starts."""
        rng, bookie = self.rng, self.bookie
        assert bookie.process is not None
        if rng.random() < 0.25:
            bookie.process.send_signal(signal.SIGTERM)
            self.load.run_for(rng.uniform(0, 0.5))
        bookie.kill()
        while rng.random() < 0.25:
            bookie.launch()
            time.sleep(rng.uniform(0, 1.5))
            bookie.kill()

    def look(self, classes: set[str]) -> None:
        """What it says, and what it answers."""
        document = self.bookie.status()
        said = {disk["crash_class"] for disk in document["disks"]}
        assert said <= classes, document["disks"]
        assert document["limbo"]["ledgers"] == 0, document["disks"]
        self.load.verify(sample=100)
        assert not self.tally.broken, self.tally.violations


@pytest.mark.timeout(240 + 12 * (KILLS + RESTARTS + REMOUNTS))
@pytest.mark.parametrize("mode", MODES)
def test_no_false_alarm(tmp_path: Path, mode: str) -> None:
    with BlockDevice(tmp_path / "device", size=SIZE) as device:
        bookie = HostedBookie(tmp_path)
        try:
            bookie.init_on(mode, [device.path / "disk1", device.path / "disk2"])
            bookie.start_again()
            alarms = Alarms(bookie, mode)
            what = ["kill"] * KILLS + ["restart"] * RESTARTS + ["remount"] * REMOUNTS
            alarms.rng.shuffle(what)
            with closing(alarms.load):
                for point, each in enumerate(what):
                    alarms.work()
                    if each == "kill":
                        alarms.kill()
                    else:
                        assert bookie.stop() == 0, bookie.stderr[-2000:]
                    if each == "remount":
                        device.remount()
                    bookie.start_again()
                    try:
                        alarms.look({"clean", "process crash"} if each == "kill" else {"clean"})
                    except AssertionError as error:
                        error.add_note(f"{mode}: {each}, {point} of {len(what)}")
                        error.add_note(bookie.stderr[-3000:])
                        raise
                alarms.load.drain()
                alarms.load.verify()
            assert not alarms.tally.broken, alarms.tally.violations
            assert alarms.tally.acknowledged
        finally:
            bookie.ensure_gone()
