"""A lost host at seeded points under load: everything that was not synced may be gone.

Under ``sync`` and ``journal`` all that was acknowledged is there, and no ledger needs limbo. Under
``write`` the ledgers that were written last are in limbo, and every other has all that was acknowledged; nothing that
was acknowledged is denied, no fence is lost and no byte is wrong. After a stop in order nothing is lost in any mode.
``CRASH_POINTS`` and ``CRASH_SEED`` as in test_kill.py.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bkbox.base.ids import BookieId, EntryId, LedgerId
from bkbox.metadata import connect
from bkbox.storage.disk.dirty_marker import MARKER_NAME
from bkbox.wire.metadata.ledger import Fragment, LedgerMetadata, LedgerState
from tests.crash.bookie import CrashBookie
from tests.crash.load import Ledger, Load
from tests.crash.losthost import HostLoss

POINTS = int(os.environ.get("CRASH_POINTS", "2"))
SEED = int(os.environ.get("CRASH_SEED", "1"))
MODES = ("sync", "write", "journal")
MIXED = "mixed"
"""Another mode at each start."""
MODE = "BKBOX_ACK_AFTER"
RETRIES: dict[str, object] = {"repair_retry_initial_s": 0.2, "repair_retry_max_s": 1.0}


class KnownLoad(Load):
    """A load on ledgers that are in the metadata store, before the first entry is sent."""

    def __init__(self, bookie: CrashBookie, seed: int) -> None:
        self._metadata = bookie.metadata
        self._bookie = BookieId(bookie.bookie_id)
        self.in_metadata: list[int] = []
        super().__init__(bookie.port, seed)

    def _new_ledger(self) -> Ledger:
        ledger = super()._new_ledger()
        asyncio.run(self._create(ledger.id))
        self.in_metadata.append(ledger.id)
        return ledger

    async def _create(self, ledger: int) -> None:
        """Alone on this bookie, or with two others that do not answer."""
        others = [BookieId("127.0.0.1:1"), BookieId("127.0.0.1:2")] if ledger % 2 else []
        ensemble = (self._bookie, *others)
        width = len(ensemble)
        async with await connect(self._metadata) as store:
            await store.create_ledger(
                LedgerMetadata(
                    LedgerId(ledger),
                    width,
                    width,
                    max(1, width - 1),
                    LedgerState.OPEN,
                    (Fragment(EntryId(0), ensemble),),
                )
            )

    def in_limbo(self, ledgers: Iterable[int]) -> None:
        """Phase one has fenced these, and not everything need be there any more."""
        for number in ledgers:
            if number in self.ledgers:
                ledger = self.ledgers[number]
                ledger.locked = ledger.limbo = ledger.fenced = True

    def forget(self, ledgers: Iterable[int]) -> None:
        """Delete ledgers, so that repair lets go of them."""

        async def delete() -> None:
            async with await connect(self._metadata) as store:
                for ledger in gone:
                    await store.delete_ledger(LedgerId(ledger))

        gone = list(ledgers)
        asyncio.run(delete())
        self.drop_ledgers(gone)
        self.in_metadata = list(self.ledgers)


@pytest.fixture
def bookie(tmp_path: Path) -> Iterator[CrashBookie]:
    bookie = CrashBookie(tmp_path)
    yield bookie
    bookie.ensure_gone()


def losable(bookie: CrashBookie, ack_after: str, *, lie: str = "") -> HostLoss:
    """Prepare the bookie and start it under the eyes of a HostLoss."""
    bookie.init_for("journal" if ack_after == MIXED else ack_after, **RETRIES)
    if ack_after == MIXED:
        bookie.environment[MODE] = "journal"
    journal = bookie.root / "journal"
    folders = [*bookie.disks, *([journal] if journal.exists() else [])]
    host = HostLoss(folders, bookie.root / "side")
    bookie.environment |= host.environment(lie=lie)
    host.begin()
    bookie.start_again()
    assert host.sees_something, "the bookie's processes run without the hooks"
    return host


def cut_power(bookie: CrashBookie, host: HostLoss, rng: random.Random, load: Load) -> bool:
    """Kill all, lose what was not synced, start again.

    The power may also go while the bookie stops in order, or soon after one of its workers died;
    and the start after it may end badly too. Returns whether something may be lost for sure: it went while every
    disk was in use, and none had a reason to sync everything, as a stop in order and the start after a worker's death
    have.
    """
    before = rng.random()
    if before < 0.2:
        os.kill(rng.choice(bookie.pids("worker")), signal.SIGKILL)
        load.run_for(rng.random())
        cut_off(bookie, host, rng)
        return False
    if before < 0.4:
        assert bookie.process is not None
        bookie.process.send_signal(signal.SIGTERM)
        load.run_for(rng.random() * 0.7)
        cut_off(bookie, host, rng)
        return False
    return cut_off(bookie, host, rng)


def cut_off(bookie: CrashBookie, host: HostLoss, rng: random.Random) -> bool:
    """The power goes at once; the starts afterwards may end badly too, but for the last. Returns as ``cut_power``."""
    bookie.kill()
    host.lose(rng)
    in_use = all((disk / MARKER_NAME).exists() for disk in bookie.disks)
    if MODE in bookie.environment:
        bookie.environment[MODE] = rng.choice(MODES)
    while rng.random() < 0.25:
        bookie.launch()
        time.sleep(rng.random() * 1.2)
        bookie.kill()
        if rng.random() < 0.6:
            host.lose(rng)
    bookie.start_again()
    return in_use


@pytest.mark.timeout(240 + 30 * POINTS)
@pytest.mark.parametrize("ack_after", [*MODES, MIXED])
def test_a_lost_host(bookie: CrashBookie, ack_after: str) -> None:
    seed = f"{SEED}-{ack_after}-host"
    rng = random.Random(seed)
    host = losable(bookie, ack_after)
    with closing(KnownLoad(bookie, rng.getrandbits(32))) as load:
        unknown = 0
        for point in range(POINTS):
            try:
                load.run(rng.randrange(10, 300))
                load.run_for(rng.randrange(3000) / 1e6)
                mode = bookie.environment.get(MODE, ack_after)
                in_use = cut_power(bookie, host, rng, load)
                if bookie.classes() == {"clean"}:
                    load.verify()  # a stop in order is as good as a sync
                elif "write" in (mode, bookie.environment.get(MODE)):
                    surely = in_use and mode == "write"
                    unknown += what_may_be_lost_is_in_limbo(bookie, load, surely=surely)
                else:
                    nothing_is_lost(bookie, load)
            except AssertionError as error:
                error.add_note(f"seed {seed!r}, point {point} of {POINTS}\n{bookie.stderr[-3000:]}")
                raise
        load.run(100)
        load.drain()
        load.verify()
    assert bookie.stop() == 0, bookie.stderr[-3000:]
    print(
        f"{seed}: {POINTS} points: {load.told()}, "
        f"{host.lost_bytes} bytes and {host.lost_names} names lost, {unknown} reads unknown"
    )


def nothing_is_lost(bookie: CrashBookie, load: Load) -> None:
    document = bookie.status()
    before = [ledger for ledger in load.ledgers.values() if ledger.limbo]
    assert before or document["limbo"]["ledgers"] == 0, document["boot"]
    load.verify(sample=300)


def what_may_be_lost_is_in_limbo(bookie: CrashBookie, load: KnownLoad, *, surely: bool) -> int:
    """What is not in limbo has everything. Those that were in limbo before are deleted, and the load goes on with new
    ones. ``surely``: something may be lost."""
    limbo = bookie.limbo()
    assert limbo or not surely, bookie.status()["boot"]
    load.drain()
    old = [ledger.id for ledger in load.ledgers.values() if ledger.limbo]
    load.in_limbo(limbo)
    unknown = load.verify()
    load.turn_over()
    load.forget(old)
    return unknown


def test_a_drive_that_lies_is_noticed(bookie: CrashBookie) -> None:
    """The canary: where fdatasync does nothing, the same test finds the loss."""
    rng = random.Random(5)
    host = losable(bookie, "sync", lie="sync")
    with (
        closing(KnownLoad(bookie, 5)) as load,
        pytest.raises(AssertionError, match=r"denied|acknowledged|limbo|host crash|not ready"),
    ):
        for _ in range(30):
            load.run(100)
            bookie.kill()
            host.lose(rng)
            bookie.start_again()
            nothing_is_lost(bookie, load)
