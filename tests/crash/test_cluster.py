"""Four bookies that acknowledge before they sync, ledgers with E = WQ = 3 and AQ = 2, and the host of
one bookie is lost while clients write: repair brings everything acknowledged back.

After phase two every entry that a client was told is safe is readable through a client, is on the
repaired bookie with the same bytes wherever the metadata names it, and no ledger is in limbo. Now and then
another bookie crashes at the same moment (its host does not), or the repair worker or the whole
bookie once more in the middle of the repair. ``CRASH_POINTS`` and
``CRASH_SEED`` as in test_kill.py.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

import bkbox.client.client as client_module
from bkbox.client.client import Client
from bkbox.client.ledger.writer import LedgerWriter
from bkbox.errors import BkboxError
from bkbox.wire.metadata.ledger import LedgerMetadata
from tests.crash.bookie import CrashBookie
from tests.crash.load import payload
from tests.crash.losthost import HostLoss
from tests.harness import raw
from tests.harness.waiting import wait_for

POINTS = int(os.environ.get("CRASH_POINTS", "1"))
SEED = int(os.environ.get("CRASH_SEED", "1"))
BOOKIES = 4
WRITERS = 3
DIGEST_BYTES = 4

Acked = dict[int, set[int]]
"""Entries that a client was told are safe, by ledger."""


class Host:
    """A bookie, and what of its disk is durable."""

    def __init__(self, root: Path, name: str) -> None:
        self.bookie = CrashBookie(root, name=name)
        self.loss = HostLoss([self.bookie.root / "disk1"], root / f"{name}-side")
        self.bookie.environment |= self.loss.environment()

    def begin(self) -> None:
        self.bookie.init_for("write", disks=1)
        self.loss.begin()
        self.bookie.start_again()

    def cut_power(self, rng: random.Random) -> None:
        self.bookie.kill()
        self.loss.lose(rng)
        self.bookie.start_again()


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[list[Host]]:
    hosts = [Host(tmp_path, f"bookie{number}") for number in range(BOOKIES)]
    yield hosts
    for host in hosts:
        host.bookie.ensure_gone()


@pytest.mark.timeout(240 + 40 * POINTS)
def test_a_lost_host_is_repaired(hosts: list[Host]) -> None:
    seed = f"{SEED}-cluster"
    rng = random.Random(seed)
    for host in hosts:
        host.begin()
    held: list[tuple[Host, Acked]] = []
    for point in range(POINTS):
        victim, other = rng.sample(hosts, 2)
        try:
            told = asyncio.run(one_point(victim, other if rng.random() < 0.4 else None, rng))
            be_repaired(victim, rng)
            asyncio.run(read_all(victim.bookie, told))
            held.append((victim, told))
        except (AssertionError, BkboxError) as error:
            error.add_note(f"seed {seed!r}, point {point} of {POINTS}, {victim.bookie.root}")
            error.add_note(victim.bookie.stderr[-3000:])
            raise
    for victim, told in held:
        asyncio.run(read_all(victim.bookie, told))
    for host in hosts:
        assert host.bookie.stop() == 0, host.bookie.stderr[-3000:]
    acks = sum(len(entries) for _, told in held for entries in told.values())
    print(f"{seed}: {POINTS} points: {acks} acks")


async def one_point(victim: Host, other: Host | None, rng: random.Random) -> Acked:
    """Write, cut the power of one host in the middle, write on as long as that goes."""
    told: Acked = {}
    async with connected(victim.bookie.metadata, rng) as client:
        closed = await client.create_ledger(3, 3, 2)
        await append_some(closed, told, rng.randrange(1, 80))
        await closed.close()
        writers = [await client.create_ledger(3, 3, 2) for _ in range(WRITERS)]
        writing = [asyncio.ensure_future(append_some(one, told, 800)) for one in writers]
        enough = rng.randrange(50, 600)
        while sum(map(len, told.values())) < enough and not all(one.done() for one in writing):
            await asyncio.sleep(0.002)
        await asyncio.sleep(rng.random() * 0.01)
        if other is not None:
            other.bookie.kill()
        await asyncio.to_thread(victim.cut_power, rng)
        if other is not None:
            await asyncio.to_thread(other.bookie.start_again)
        for task in writing:
            task.cancel()
        for outcome in await asyncio.gather(*writing, return_exceptions=True):
            assert outcome is None or isinstance(outcome, BkboxError | asyncio.CancelledError)
        for one in writers:
            await one.abort()
    return told


async def append_some(writer: LedgerWriter, told: Acked, count: int) -> None:
    """Append with a few entries under way, until the writer is fenced or told to end."""
    mine = told.setdefault(writer.ledger_id, set())
    for start in range(0, count, 8):
        numbers = range(start, min(start + 8, count))
        futures = [writer.append_nowait(payload(writer.ledger_id, n, 0)) for n in numbers]
        for number, future in zip(numbers, futures, strict=True):
            future.add_done_callback(lambda done, number=number: note(done, mine, number))
        await asyncio.gather(*futures)


def note(done: asyncio.Future[int], mine: set[int], number: int) -> None:
    if not done.cancelled() and done.exception() is None:
        assert done.result() == number
        mine.add(number)


@asynccontextmanager
async def connected(uri: str, rng: random.Random) -> AsyncIterator[Client]:
    async with client_module.connect(
        uri, rng=random.Random(rng.random()), backoff_max_s=0.2
    ) as client:
        yield client


def be_repaired(victim: Host, rng: random.Random) -> None:
    """Until no ledger is in limbo; now and then something dies meanwhile."""
    bookie = victim.bookie
    if rng.random() < 0.3:
        time.sleep(rng.random() * 0.8)
        with suppress(ProcessLookupError):
            for pid in bookie.pids("repair"):
                os.kill(pid, signal.SIGKILL)
    elif rng.random() < 0.3:
        time.sleep(rng.random() * 0.8)
        if rng.random() < 0.5:
            victim.cut_power(rng)
        else:
            bookie.kill()
            bookie.start_again()
    wait_for(
        lambda: bookie.status()["limbo"]["ledgers"] == 0, "limbo to be empty", timeout=60, pause=0.1
    )


async def read_all(repaired: CrashBookie, told: Acked) -> None:
    """Through a client, as anybody would, and then on the bookie that lost and got back."""
    async with connected(repaired.metadata, random.Random(0)) as client:
        for ledger, entries in told.items():
            reader = await client.open_ledger(ledger)
            last = reader.last_add_confirmed
            assert last >= max(entries, default=-1), f"ledger {ledger} ends at {last}: {entries}"
            found = [entry async for entry in reader.read()] if last >= 0 else []
            assert [entry.payload for entry in found] == [
                payload(ledger, number, 0) for number in range(last + 1)
            ]
            read_on(repaired, reader.metadata, entries)


def read_on(bookie: CrashBookie, metadata: LedgerMetadata, entries: set[int]) -> None:
    """What one bookie must have by the metadata: every write set is a whole ensemble."""
    ledger = metadata.ledger_id
    with raw.RawClient(bookie.port) as client:
        for number in sorted(entries):
            if bookie.bookie_id not in metadata.fragment_of(number).ensemble:
                continue
            answer = client.read(ledger, number)
            assert answer.code == raw.EOK, f"{ledger}/{number} on {bookie.root}: {answer.code}"
            assert answer.body[32 + DIGEST_BYTES :] == payload(ledger, number, 0)
