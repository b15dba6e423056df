"""What is done to a bookie's disks while every call is written down. A scenario is

- ``prepare``: makes the folder as it is at the beginning, all of it durable, and
- ``act``: the steps that are crashed at every call, carried out by a process of their own (child.py).

A new one (compaction, drain, …) is a function in ``SCENARIOS``; nothing else has to be told of it. Steps are
deterministic: the same calls every time, in one thread but for LevelDB's own.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bkbox.storage.disk.rebuild import rebuild_index
from bkbox.storage.files import RealFiles
from bkbox.storage.index.ordered_store import INDEX_DIR
from bkbox.storage.log.records import AckAfter
from tests.crash.points.miniature import LEDGERS, Miniature
from tests.crash.points.promises import Note

ALL_MODES = tuple(AckAfter)
LATER_LEDGER = LEDGERS.stop
"""Made after a crash; the metadata store knows it afterwards."""

EARLIER_BOOT = "a boot before that"


@dataclass(frozen=True, slots=True)
class Scenario:
    """``may_lose``: there was a loss before; ``rebuilds``: the index may have to be made anew by the next start."""

    name: str
    prepare: Callable[[Miniature], None]
    act: Callable[[Miniature], None]
    modes: tuple[AckAfter, ...] = ALL_MODES
    segment_bytes_max: int = 1 << 16
    disks: int = 1
    may_lose: bool = False
    rebuilds: bool = False


def miniature(scenario: Scenario, root: Path, mode: AckAfter, note: Note) -> Miniature:
    """The bookie of a scenario in the watched folder."""
    disks = [root / f"disk{number + 1}" for number in range(scenario.disks)]
    journal = root / "journal" if mode is AckAfter.JOURNAL else None
    return Miniature(disks, journal, mode, note, scenario.segment_bytes_max, 1 << 20)


# ---- beginnings -----------------------------------------------------------------------------------------


def nothing(_bookie: Miniature) -> None:
    """An empty folder."""


def in_use_before(bookie: Miniature) -> None:
    """A bookie with some ledgers, stopped in order."""
    bookie.init()
    bookie.start("first", EARLIER_BOOT)
    bookie.add(1, 0, 1, 2)
    bookie.add(2, 0)
    bookie.fence(3)
    bookie.write_lac(1, 1)
    bookie.stop()


def killed_before(bookie: Miniature) -> None:
    """A process that was killed, on this very boot."""
    in_use_before(bookie)
    bookie.start("second")
    bookie.add(1, 3, 4)
    bookie.add(4, 0)
    bookie.abandon()


def index_lost_before(bookie: Miniature) -> None:
    """The same, and somebody removed the indexes."""
    killed_before(bookie)
    for disk in bookie.disks:
        shutil.rmtree(disk / INDEX_DIR)


def limbo_before(bookie: Miniature) -> None:
    """A lost host: under ``write`` everything is about to be in limbo, else what is put there."""
    in_use_before(bookie)
    bookie.start("second", EARLIER_BOOT)
    bookie.add(1, 3, 4)
    bookie.abandon()


# ---- steps ----------------------------------------------------------------------------------------------


def first_boot(bookie: Miniature) -> None:
    bookie.init()
    bookie.start("run")
    bookie.add(1, 0, 1)
    bookie.add(2, 0)


def adds(bookie: Miniature) -> None:
    bookie.start("run")
    bookie.add(1, 3)
    bookie.add(1, 4, 5, 6)
    bookie.add(4, *range(8))
    bookie.add_overlapping(2, 1, 2, 4)
    bookie.defer(2, 3)
    bookie.defer(5, 0, 1)
    bookie.add(5, 2)
    bookie.force(5)
    bookie.defer(5, 3)
    bookie.add(1, 7)


def fences(bookie: Miniature) -> None:
    bookie.start("run")
    bookie.add(4, 0)
    bookie.fence(4)
    bookie.add(1, 3)
    bookie.write_lac(1, 2)
    bookie.fence(1)
    bookie.fence(5)
    bookie.write_lac(2, 0)
    bookie.set_limbo(2, 6)
    bookie.add(7, 0, 1)
    bookie.clear_limbo(2)
    bookie.add(7, 2)


def checkpoints(bookie: Miniature) -> None:
    bookie.start("run")
    bookie.add(1, 3, 4)
    bookie.checkpoint()
    bookie.add(4, 0)
    bookie.checkpoint(lambda: bookie.add(4, 1, 2))
    bookie.fence(4)
    bookie.checkpoint(lambda: bookie.fence(5))
    bookie.add(1, 5)


def rolls(bookie: Miniature) -> None:
    bookie.start("run")
    for entry in range(3, 22):
        bookie.add(1 if entry % 3 else 2, entry)
        if entry == 12:
            bookie.checkpoint(lambda: bookie.add(4, 0))
    bookie.add_overlapping(1, 22, 23, 24)


def compacts(bookie: Miniature) -> None:
    bookie.start("run")
    for entry in range(3, 12):
        bookie.add(1 if entry % 3 else 2, entry)
    bookie.fence(4)
    bookie.write_lac(1, 2)
    bookie.set_limbo(2)
    bookie.compact()
    bookie.add(1, 20)
    bookie.compact()


def rests(bookie: Miniature) -> None:
    bookie.start("run")
    bookie.rest()
    bookie.add(1, 3, 4)
    bookie.add(4, 0)
    bookie.rest()
    bookie.add(1, 5)
    bookie.fence(4)
    bookie.rest()
    bookie.checkpoint()
    bookie.defer(2, 1)
    bookie.rest()
    bookie.add(5, 0)


def clean_stop(bookie: Miniature) -> None:
    bookie.start("run")
    bookie.fence(4)
    bookie.add(1, 3, 4)
    bookie.add(1, 5)
    bookie.stop()
    bookie.start("run again")
    bookie.stop()


def rebuild(bookie: Miniature) -> None:
    rebuild_indexes(bookie)
    bookie.start("run")
    bookie.add(1, 3)


def rebuild_indexes(bookie: Miniature) -> None:
    """As `bkbox index rebuild` does for each disk."""
    for disk in bookie.disks:
        rebuild_index(RealFiles(), disk, keep_going=False, progress=lambda _done, _all: None)


def disk_add(bookie: Miniature) -> None:
    bookie.init()
    bookie.start("run")
    bookie.add(1, 3)
    bookie.add(7, 0, 1)
    bookie.add(8, 0)
    bookie.fence(7)
    bookie.stop()


def in_use_on_one_disk(bookie: Miniature) -> None:
    in_use_before(dataclasses.replace(bookie, disks=bookie.disks[:1]))


def limbo(bookie: Miniature) -> None:
    bookie.start("run")
    if not bookie.may_have_lost:
        bookie.set_limbo(1, 2, 6)
    bookie.clear_limbo(1)
    bookie.checkpoint()
    bookie.clear_limbo(2)
    bookie.stop()


def recover(bookie: Miniature) -> None:
    """A start after a crash, and a little more."""
    bookie.start("recovery")
    bookie.add(LATER_LEDGER, 0, 1)
    bookie.rest()
    bookie.add(LATER_LEDGER, 2)
    bookie.stop()


RECOVERY = "recovery"
"""What is done to something that a crash has left; nothing prepares it."""

_SMALL = 6_000
SCENARIOS = {
    each.name: each
    for each in (
        Scenario("first-boot", nothing, first_boot),
        Scenario("add", in_use_before, adds),
        Scenario("fence", in_use_before, fences),
        Scenario("checkpoint", in_use_before, checkpoints),
        Scenario("roll", in_use_before, rolls, segment_bytes_max=_SMALL),
        Scenario("compaction", in_use_before, compacts, segment_bytes_max=_SMALL),
        Scenario("rest", in_use_before, rests, segment_bytes_max=_SMALL),
        Scenario("clean-stop", in_use_before, clean_stop),
        Scenario("index-rebuild", in_use_before, rebuild, rebuilds=True),
        Scenario("index-lost", index_lost_before, recover, rebuilds=True),
        Scenario("disk-add", in_use_on_one_disk, disk_add, disks=2),
        Scenario("restart", killed_before, recover),
        Scenario("limbo", limbo_before, limbo, may_lose=True),
        Scenario(RECOVERY, nothing, recover, segment_bytes_max=_SMALL),
    )
}
