"""Cuts the power under a bookie again and again, and checks after each cut what it had acknowledged:

    python -m tests.crash.device.campaign [--cuts N] [--mode MODE] [--fs FS] [--seed S] [--jobs J]
        [--fault power|disk-power|eio|vanish] [--report PAGE] [--keep FOLDER]

The bookie's disks, its journal, its configuration and the metadata store are on one block device
(blockdevice.py). It is loaded, and the power is cut as some write or flush arrives at the device, or
after some time: what the device had not flushed is lost, in any part; all processes of the bookie
are killed, just before the cut or just after it. Then the file system is checked and mounted, and
the bookie started, with another boot id. Some cuts meet a bookie that is starting or stopping.

With another fault the host stays up. ``disk-power``: only the device loses power. ``eio``: writes and
flushes fail from some time on; ``vanish``: everything does; nothing is lost of what the device had
acknowledged. The load goes on for a while, the bookie is stopped or killed, the device is repaired
and mounted anew, and the bookie is started. What the kernel had not written is gone.

Prints a table, a row for each mode and file system, and ends with 1 if a promise was broken. With
``--report`` the table also goes between the markers ``power cuts`` of that page.
"""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
import os
import random
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bkbox.errors import BkboxError
from tests.bench.peers.report import machine, replace_between
from tests.crash.bookie import CrashBookie
from tests.crash.device.blockdevice import FILE_SYSTEMS, BlockDevice, missing
from tests.crash.device.checker import CheckedLoad, Tally, ledgers_in_metadata
from tests.crash.load import Violation
from tests.harness.cluster import NOBODY, create_ledgers, ledger_of

MODES = ("sync", "write", "journal")
FAULTS = ("power", "disk-power", "eio", "vanish")
CUTS_PER_DEVICE = 25
"""Then it goes on with a new file system and a new bookie."""
LEDGERS = 40
"""Made before each load: as many as it may want."""
SAMPLE = 400
"""Of older entries so many are read after each cut; all are before the device is given up."""
PATIENCE_S = 10.0
"""For an answer that is not 'unknown', where nothing may be lost."""

_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Setting:
    """What is run. ``lie``: of the bookie's workers, see tests/crash/hooks. ``keep``: the device
    after a cut at which something was wrong is written there.
    """

    mode: str
    fs: str
    seed: int
    cuts: int
    fault: str = "power"
    lie: str = ""
    keep: Path | None = None

    def __str__(self) -> str:
        return f"{self.mode}-{self.fs}-{self.seed}"

    @property
    def may_lose(self) -> bool:
        """Whether an acknowledged entry may be unknown after a cut, and its ledger be fenced."""
        return self.mode == "write" or self.fault != "power"


class PoweredBookie(CrashBookie):
    """A bookie that is on a device with all it has. ``scratch`` is a folder elsewhere."""

    def __init__(self, device: BlockDevice, scratch: Path, setting: Setting) -> None:
        super().__init__(device.path)
        self._boot_id = scratch / "boot_id"
        self._same_boot = setting.fault != "power"
        if setting.lie:
            (scratch / "side" / "kept").mkdir(parents=True, exist_ok=True)
            hooks = Path(__file__).parents[1] / "hooks"
            lies = {"CRASH_LIE": setting.lie, "CRASH_SIDE": str(scratch / "side")}
            self.environment |= {"PYTHONPATH": str(hooks), **lies}

    def launch(self) -> None:
        self._boot_id.write_text(f"{uuid.uuid4()}\n")
        super().launch()

    def command(self) -> list[str]:
        """The bookie ends with the campaign. Where the host is to have started anew, it has a mount
        namespace of its own, in which the kernel's boot id is another.
        """
        command = ["setpriv", "--pdeathsig", "KILL", *super().command()]
        if self._same_boot:
            return command
        another = 'mount -n --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"'
        shell = ["sh", "-c", another, str(self._boot_id)]
        return ["unshare", "--mount", "--propagation", "slave", *shell, *command]


class Round:
    """One device with one bookie, through a number of power cuts."""

    def __init__(
        self, device: BlockDevice, scratch: Path, setting: Setting, rng: random.Random
    ) -> None:
        self.tally = Tally()
        self._device = device
        self._setting = setting
        self._rng = rng
        self._database = device.path / "metadata.db"
        self._created: set[int] = set()
        self._bookie = PoweredBookie(device, scratch, setting)

    def run(self, cuts: int) -> None:
        """Ends with the first cut after which something is wrong, which the tally says."""
        try:
            self._bookie.init_for(self._setting.mode)
            self._device.remount()
            self._bookie.start_again()
            load = CheckedLoad(
                self._bookie.port, self._rng.getrandbits(32), self.tally, self._create()
            )
            # On a slow machine the first cut would come before that, and prove nothing.
            load.run(acks=1)
            while self.tally.cuts < cuts:
                self._one_cut(load)
                if self.tally.broken:
                    return
            load.drain()
            self._verify(load, sample=None)
            if status := self._bookie.stop():
                raise Violation(f"an ordered stop ended with {status}")
        except (
            AssertionError,
            BkboxError,
            OSError,
            sqlite3.Error,
            subprocess.SubprocessError,
        ) as error:
            notes = "\n".join(getattr(error, "__notes__", ()))
            self.tally.count(AssertionError(f"{error!r} {notes}\n{self._bookie.stderr[:4000]}"))
            self._keep()
        finally:
            self._bookie.ensure_gone()
            self.tally.lost_sectors = self._device.counters()["lost_sectors"]

    def _one_cut(self, load: CheckedLoad) -> None:
        rng = self._rng
        load.provide(self._create())
        if rng.random() < 0.2 or self._setting.may_lose:
            load.turn_over()
        load.run_for(rng.uniform(0, 0.25))
        power = self._setting.fault.endswith("power")
        stopped = self._cut(load) if power else self._fail(load)
        load.close()
        self._device.come_back()
        while power and rng.random() < 0.2:
            self._cut_a_start()
            stopped = False
        self._bookie.start_again()
        stopped = stopped and self._bookie.classes() == {"clean"}
        if self._setting.may_lose and not stopped:
            load.entries_may_be_lost()
        if not self._setting.may_lose and (limbo := self._bookie.status()["limbo"]["ledgers"]):
            reasons = [disk["reason"] for disk in self._bookie.status()["disks"]]
            raise Violation(f"{limbo} ledgers are in limbo, and none need be: {reasons}")
        self._verify(load, sample=SAMPLE)
        if self.tally.broken:
            self._keep()

    def _keep(self) -> None:
        if self._setting.keep is not None:
            self._device.save(self._setting.keep / f"{self._setting}-{time.time_ns()}")

    def _cut(self, load: CheckedLoad) -> bool:
        """Cut the power under load. Whether an ordered stop had begun."""
        rng = self._rng
        self._device.arm(round(2 ** rng.uniform(0, 9)), rng.getrandbits(63))
        write_back = threading.Thread(target=_write_back, args=(self._device.path,))
        if rng.random() < 0.3:
            write_back.start()
        self._load_until_cut(load, rng.uniform(0.02, 0.3))
        stopping = rng.random() < 0.15
        if stopping:
            self._signal(signal.SIGTERM)
            self._load_until_cut(load, rng.uniform(0, 0.5))
        self._lose_power()
        if write_back.ident is not None:
            write_back.join()
        return stopping

    def _fail(self, load: CheckedLoad) -> bool:
        """Let the device fail under load, then stop or kill the bookie. Whether it was stopped."""
        if self._setting.fault == "eio":
            self._device.eio()
        else:
            self._device.vanish()
        load.run_for(self._rng.uniform(0, 0.5))
        self.tally.cuts += 1
        stopping = self._rng.random() < 0.5
        if stopping:
            self._bookie.stop()  # it says that it was not clean, if it ends at all in time
        else:
            self._bookie.kill()
        return stopping

    def _cut_a_start(self) -> None:
        """The power goes again while the bookie starts, or as soon as it is ready."""
        rng = self._rng
        self._device.arm(round(2 ** rng.uniform(0, 7)), rng.getrandbits(63))
        self._bookie.launch()
        assert self._bookie.process is not None
        select.select([self._device, self._bookie.process.stdout], [], [], 20)
        self._lose_power()
        self._device.come_back()

    def _load_until_cut(self, load: CheckedLoad, seconds: float) -> None:
        """Until the armed cut has happened, but no longer than that."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not select.select([self._device], [], [], 0)[0]:
            load.pump(0.005)

    def _lose_power(self) -> None:
        """Cut it now, unless that has happened. The bookie's processes end a moment before that or
        after it: the host is gone as well.
        """
        if self._rng.random() < 0.5:
            self._signal(signal.SIGKILL)
        self._device.cut(self._rng.getrandbits(63))
        self._bookie.kill()
        self.tally.cuts += 1

    def _signal(self, number: int) -> None:
        assert self._bookie.process is not None
        os.killpg(self._bookie.process.pid, number)

    def _create(self) -> list[int]:
        """New ledgers in the metadata store: on this bookie alone, or on it and two others, which
        do not answer.
        """
        first = max(self._created, default=0) + 1
        made = range(first, first + LEDGERS)
        us = self._bookie.bookie_id
        others = [NOBODY, "127.0.0.1:2"]
        create_ledgers(
            self._bookie.metadata, [ledger_of(each, [us, *others[: each % 2 * 2]]) for each in made]
        )
        self._created.update(made)
        return [*made]

    def _verify(self, load: CheckedLoad, sample: int | None) -> None:
        gone = self._created - ledgers_in_metadata(self._database)
        self.tally.metadata_lost += len(gone)
        for ledger in gone:
            self.tally.note(f"ledger {ledger} is not in the metadata store")
        load.verify(sample=sample, unknown_ok=self._setting.may_lose, patience_s=PATIENCE_S)


def campaign(setting: Setting) -> Tally:
    """Run it; what happened."""
    total, began, number = Tally(), time.monotonic(), 0
    while total.cuts < setting.cuts:
        rng = random.Random(f"{setting}-{number}")
        scratch = Path(tempfile.mkdtemp(prefix="bkbox-power-"))
        try:
            with BlockDevice(scratch / "device", fs=setting.fs) as device:
                one = Round(device, scratch, setting, rng)
                one.run(min(CUTS_PER_DEVICE, setting.cuts - total.cuts))
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        one.tally.cuts = max(
            one.tally.cuts, 1
        )  # a bookie that does not start shall not go on for ever
        total.add(one.tally)
        number += 1
    total.seconds = time.monotonic() - began
    return total


HEAD = (
    "ack_after", "file system", "cuts", "entries acknowledged", "sectors lost", "entries unknown", "denied",
    "fences lost", "wrong bytes", "metadata lost", "other", "seconds",
)  # fmt: skip
RULE = f"|---|---|{'--:|' * (len(HEAD) - 2)}"


def _row(mode: str, fs: str, tally: Tally) -> str:
    counted = (
        tally.cuts, tally.acknowledged, tally.lost_sectors, tally.unknown, tally.denied,
        tally.fences_lost, tally.wrong_bytes, tally.metadata_lost, tally.other, round(tally.seconds),
    )  # fmt: skip
    return f"| {mode} | {fs} | {' | '.join(f'{number:,}' for number in counted)} |"


def _write_back(folder: Path) -> None:
    """What the kernel would do some seconds later: hand all that was written to the device."""
    with suppress(OSError):  # it may be cut meanwhile
        fd = os.open(folder, os.O_RDONLY)
        _LIBC.syncfs(fd)
        os.close(fd)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.device.campaign")
    parser.add_argument("--cuts", type=int, default=1000, help="in all (1000)")
    parser.add_argument("--mode", choices=MODES, help="only this one")
    parser.add_argument("--fs", choices=FILE_SYSTEMS, help="only this one")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="rows at a time")
    parser.add_argument("--fault", choices=FAULTS, default=FAULTS[0])
    parser.add_argument("--keep", type=Path, help="folder for devices on which something was wrong")
    parser.add_argument("--report", type=Path, help="page with markers for the table")
    given = parser.parse_args()
    kinds = [
        (mode, fs)
        for mode in ([given.mode] if given.mode else MODES)
        for fs in ([given.fs] if given.fs else FILE_SYSTEMS)
    ]
    for _mode, fs in kinds:
        if lacks := missing(fs):
            parser.error(f"no block device: {lacks}")
    cuts = -(-given.cuts // len(kinds))
    settings = [
        Setting(mode, fs, given.seed, cuts, fault=given.fault, keep=given.keep)
        for mode, fs in kinds
    ]
    if given.keep:
        given.keep.mkdir(parents=True, exist_ok=True)
    lines = [f"| {' | '.join(HEAD)} |", RULE]
    print("\n".join(lines), flush=True)
    total = Tally()
    with ProcessPoolExecutor(given.jobs, multiprocessing.get_context("spawn")) as pool:
        for setting, tally in zip(settings, pool.map(campaign, settings), strict=True):
            for line in tally.violations[:20]:
                print(f"{setting}: {line}", file=sys.stderr)
            lines.append(_row(setting.mode, setting.fs, tally))
            print(lines[-1], flush=True)
            total.add(tally)
    lines.append(_row("all", "", total))
    print(lines[-1])
    if given.report is not None:
        command = f"`python -m tests.crash.device.campaign {' '.join(_plain(sys.argv[1:]))}`"
        said = "\n".join([f"{command}, on {machine()}:", "", *lines])
        given.report.write_text(replace_between(given.report.read_text(), "power cuts", said))
    return 1 if total.broken else 0


def _plain(arguments: list[str]) -> list[str]:
    """Without the page and the folder that results go to."""
    for option in {"--report", "--keep"}.intersection(arguments):
        at = arguments.index(option)
        arguments = arguments[:at] + arguments[at + 2 :]
    return arguments


if __name__ == "__main__":
    sys.exit(main())
