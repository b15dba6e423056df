"""A lost host under what only version 3 has: deferred sync and force, explicit LACs.

At seeded points, under ``sync`` and ``journal``:

- what was added with deferred sync and then forced is there, and so is every add without it, whatever was deferred
  around it or written over it;
- what was deferred and not forced is there or is not: with the bytes of some version that was sent, and never an
  older one than was promised;
- an explicit LAC that was acknowledged is there, or a later one that was sent;
- no ledger is in limbo for any of it, and none that was ever acknowledged is unknown.

``CRASH_POINTS`` and ``CRASH_SEED`` as in test_kill.py.
"""

from __future__ import annotations

import random
import struct
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.crash.bookie import CrashBookie
from tests.crash.losthost import HostLoss
from tests.crash.test_lost_host import POINTS, SEED, cut_off, losable
from tests.harness.raw import master_key, payload_of
from tests.harness.raw3 import ADD, ENOENTRY, EOK, WRITE_LAC, RawClient3, add_part, lac_packet

LEDGERS = range(1, 7)
LAC_AT = struct.Struct(">8xq")


@dataclass
class Entry:
    """``versions`` that were sent; the last one acknowledged; the last one that must outlive the host."""

    versions: list[bytes] = field(default_factory=list)
    acked: int | None = None
    durable: int | None = None


@dataclass
class Ledger:
    entries: defaultdict[int, Entry] = field(default_factory=lambda: defaultdict(Entry))
    known: bool = False
    lac_sent: int = -1
    lac_acked: int | None = None


class DeferredLoad:
    """One client that does one thing after the other, and at last several at once."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._ledgers: defaultdict[int, Ledger] = defaultdict(Ledger)
        self.forces = 0
        self.lost = 0

    def run(self, client: RawClient3, steps: int) -> None:
        for _ in range(steps):
            number = self._rng.choice(LEDGERS)
            ledger = self._ledgers[number]
            dice = self._rng.random()
            if dice < 0.08:
                assert client.force(number) == EOK
                self.forces += 1
                for entry in ledger.entries.values():
                    entry.durable = entry.acked
            elif dice < 0.14:
                ledger.lac_sent += self._rng.randrange(1, 4)
                assert client.write_lac(number, ledger.lac_sent) == EOK
                ledger.lac_acked = ledger.lac_sent
                ledger.known = True
            else:
                deferred = dice < 0.8
                entry, payload = self._next(number)
                assert client.add3(number, entry, payload, deferred=deferred) == EOK
                self._acked(ledger, entry, deferred)

    def send(self, client: RawClient3, count: int) -> None:
        """Without waiting for the answers: each may be carried out, or not."""
        for _ in range(count):
            number = self._rng.choice(LEDGERS)
            if self._rng.random() < 0.1:
                ledger = self._ledgers[number]
                ledger.lac_sent += 1
                packet = lac_packet(number, ledger.lac_sent)
                part = [(1, number), (2, ledger.lac_sent), (3, master_key()), (4, packet)]
                client.post(WRITE_LAC, part)
            else:
                entry, payload = self._next(number)
                deferred = self._rng.random() < 0.7
                client.post(ADD, add_part(number, entry, payload, deferred=deferred))

    def _next(self, number: int) -> tuple[int, bytes]:
        """A new entry, or another version of an old one."""
        entries = self._ledgers[number].entries
        again = bool(entries) and self._rng.random() < 0.25
        entry = self._rng.choice(list(entries)) if again else max(entries, default=-1) + 1
        version = len(entries[entry].versions)
        payload = b"%d/%d/%d " % (number, entry, version) + bytes(self._rng.randrange(3000))
        entries[entry].versions.append(payload)
        return entry, payload

    def _acked(self, ledger: Ledger, number: int, deferred: bool) -> None:
        entry = ledger.entries[number]
        ledger.known = True
        entry.acked = len(entry.versions) - 1
        if not deferred:
            entry.durable = entry.acked

    def verify(self, client: RawClient3) -> None:
        """Compare, and take what is there for what is to be there from now on."""
        for number, ledger in self._ledgers.items():
            for entry_id, entry in list(ledger.entries.items()):
                self._verify_entry(client, number, entry_id, entry, known=ledger.known)
                if not entry.versions:
                    del ledger.entries[entry_id]
            status, packet, _last = client.read_lac(number)
            found = LAC_AT.unpack_from(packet)[0] if packet is not None else None
            if ledger.lac_acked is not None:
                assert status == EOK
                assert found is not None
                assert ledger.lac_acked <= found <= ledger.lac_sent
            ledger.lac_acked = found
            ledger.known = ledger.known or bool(ledger.entries) or found is not None

    def _verify_entry(
        self, client: RawClient3, number: int, entry_id: int, entry: Entry, *, known: bool
    ) -> None:
        answer = client.read3(number, entry_id)
        what = f"ledger {number} entry {entry_id}"
        if answer.status == EOK:
            assert answer.part is not None
            found = entry.versions.index(payload_of(bytes(answer.part[4])))
            assert entry.durable is None or found >= entry.durable, f"{what}: an old version"
            self.lost += entry.acked is not None and found < entry.acked
            entry.acked = entry.durable = found
            # What was sent later is not there now, and cannot come back.
            del entry.versions[found + 1 :]
            return
        assert entry.durable is None, f"{what} was promised, and the answer is {answer.status}"
        assert answer.status == ENOENTRY or not known, f"{what}: {answer.status}"
        self.lost += entry.acked is not None
        entry.versions.clear()


@pytest.fixture
def bookie(tmp_path: Path) -> Iterator[CrashBookie]:
    bookie = CrashBookie(tmp_path)
    yield bookie
    bookie.ensure_gone()


@pytest.mark.timeout(240 + 30 * POINTS)
@pytest.mark.parametrize("ack_after", ["sync", "journal"])
def test_a_lost_host(bookie: CrashBookie, ack_after: str) -> None:
    seed = f"{SEED}-{ack_after}-deferred"
    rng = random.Random(seed)
    host = losable(bookie, ack_after)
    load = DeferredLoad(rng)
    for point in range(POINTS):
        try:
            one_loss(bookie, host, load, rng)
        except AssertionError as error:
            error.add_note(f"seed {seed!r}, point {point} of {POINTS}\n{bookie.stderr[-3000:]}")
            raise
    assert bookie.stop() == 0, bookie.stderr[-3000:]
    print(f"{seed}: {POINTS} points, {load.forces} forces, {load.lost} deferred entries lost")


def one_loss(bookie: CrashBookie, host: HostLoss, load: DeferredLoad, rng: random.Random) -> None:
    with RawClient3(bookie.port) as client:
        load.run(client, rng.randrange(20, 200))
        load.send(client, rng.randrange(30))
        time.sleep(rng.randrange(3000) / 1e6)
        cut_off(bookie, host, rng)
    assert bookie.status()["limbo"]["ledgers"] == 0
    with RawClient3(bookie.port) as client:
        load.verify(client)


def test_deferred_adds_can_be_lost(bookie: CrashBookie) -> None:
    """The canary: without a force some of them are gone, so the test above sees hosts that lose something."""
    rng = random.Random(11)
    host = losable(bookie, "sync")
    load = DeferredLoad(rng)
    for _ in range(30):
        one_loss(bookie, host, load, rng)
        if load.lost:
            return
    pytest.fail("nothing was ever lost")
