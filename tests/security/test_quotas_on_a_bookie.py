"""Quotas on a real bookie: an owner goes over, and comes under again, with processes killed and metadata away."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bkbox.base.ids import BookieId, EntryId, LedgerId
from bkbox.jobs.job import JobKind
from bkbox.metadata import connect
from bkbox.wire.metadata.ledger import Fragment
from tests.harness import raw, raw3
from tests.harness.cluster import NOBODY, create_ledgers, ledger_of
from tests.harness.fixtures import MakeBookie
from tests.harness.processes import BookieProcess, bkbox, put_keys
from tests.harness.raw import EOK, ETOOMANY, RECOVERY, RawClient
from tests.harness.raw3 import RawClient3
from tests.harness.waiting import wait_for
from tests.repair.space.tidying import SETTINGS, Cluster

INTERVAL_S = 0.2
GREEDY, MODEST, NAMELESS = range(1, 11), range(11, 16), range(16, 18)
PAYLOAD = bytes(2_000)


def create(bookie: BookieProcess) -> None:
    """Ledgers of two owners and of nobody, in the metadata; Pulsar names an owner in its own way."""
    owners = {
        **dict.fromkeys(GREEDY, (("owner", b"greedy"), ("application", b"pulsar"))),
        **dict.fromkeys(MODEST, (("application", b"modest"),)),
        **dict.fromkeys(NAMELESS, ()),
    }
    create_ledgers(
        bookie.metadata,
        [
            replace(ledger_of(ledger, [bookie.bookie_id]), custom=custom)
            for ledger, custom in owners.items()
        ],
    )


def delete(bookie: BookieProcess, ledgers: Iterable[int]) -> None:
    async def go() -> None:
        async with await connect(bookie.metadata) as store:
            for ledger in ledgers:
                await store.delete_ledger(LedgerId(ledger))

    asyncio.run(go())


def put_elsewhere(bookie: BookieProcess, ledger: int) -> None:
    """Have the metadata of a ledger name another bookie."""

    async def go() -> None:
        async with await connect(bookie.metadata) as store:
            found = await store.read_ledger(LedgerId(ledger))
            fragment = Fragment(EntryId(0), (BookieId(NOBODY),))
            await store.write_ledger(replace(found.value, fragments=(fragment,)), found.version)

    asyncio.run(go())


def fill(bookie: BookieProcess, entries: int) -> None:
    """So many entries to each ledger."""
    with RawClient(bookie.port) as client:
        for ledger in (*GREEDY, *MODEST, *NAMELESS):
            frames = [raw.add_frame(ledger, entry, PAYLOAD) for entry in range(entries)]
            client.send(b"".join(frames))
            assert {client.answer().code for _ in frames} <= {EOK, ETOOMANY}


def add(bookie: BookieProcess, ledger: int, entry: int = 10_000) -> int:
    """The answer to an add over a connection of its own, which waits for a front-end that is away."""
    with RawClient(bookie.port, timeout=30) as client:
        return client.add(ledger, entry, b"x")


def comes_over(bookie: BookieProcess) -> None:
    wait_for(lambda: add(bookie, GREEDY[0]) == ETOOMANY, "the owner to be over")


def takes_adds(bookie: BookieProcess, ledger: int) -> None:
    wait_for(lambda: add(bookie, ledger, 20_000) == EOK, "adds to be taken again")


def looks(bookie: BookieProcess) -> None:
    """Come back when a look has begun and ended since."""

    def looked() -> int:
        return int(bookie.status()["quotas"]["checked_ms"])

    for _ in range(2):
        before = looked()
        wait_for(lambda before=before: looked() > before, "a look")


@contextmanager
def metadata_away(bookie: BookieProcess) -> Iterator[None]:
    path = bookie.metadata.removeprefix("sqlite:")
    os.rename(path, f"{path}.away")
    try:
        yield
    finally:
        os.rename(f"{path}.away", path)


def put(bookie: BookieProcess, **keys: object) -> None:
    """Change the configuration of a bookie that runs."""
    put_keys(bookie, **keys)
    bkbox("config", "reload", "--config", str(bookie.config))


def owners(bookie: BookieProcess) -> dict[str, dict[str, Any]]:
    return {each["owner"]: each for each in bookie.status()["quotas"]["owners"]}


@pytest.fixture
def bookie(make_bookie: MakeBookie) -> BookieProcess:
    made = make_bookie(
        quotas="greedy=300K;*=1G", quota_interval_s=INTERVAL_S, restart_backoff_initial_s=0.2
    ).start()
    create(made)
    return made


def test_an_owner_goes_over_and_comes_under_again(bookie: BookieProcess) -> None:
    fill(bookie, 20)
    comes_over(bookie)
    with RawClient(bookie.port) as client, RawClient3(bookie.port) as client3:
        for ledger in GREEDY:
            assert client.add(ledger, 10_000, b"x") == ETOOMANY
            assert client3.add3(ledger, 10_000) == raw3.ETOOMANY
            assert client.read(ledger, 0).code == EOK
            assert client3.read3(ledger, 0).status == raw3.EOK
            assert client.add(ledger, 10_001, b"x", RECOVERY) == EOK
            assert client3.add3(ledger, 10_002, recovery=True) == raw3.EOK
        for ledger in (*MODEST, *NAMELESS):
            assert client.add(ledger, 10_000, b"x") == EOK
            assert client3.add3(ledger, 10_001) == raw3.EOK
        assert client.fence(GREEDY[9], 0).code == EOK
    looks(bookie)
    found = owners(bookie)
    assert found["greedy"]["exceeded"]
    assert found["greedy"]["bytes_max"] == 300 << 10
    assert 300 << 10 < found["greedy"]["bytes"] < 600 << 10
    each = len(raw.make_entry(1, 0, PAYLOAD)) + 16
    assert found["modest"]["bytes"] // each == 20 * len(MODEST)
    assert found["(none)"]["bytes"] // each == 20 * len(NAMELESS)
    status = bookie.status()
    assert status["jobs"]["active"] == []
    [warning] = [each for each in status["warnings"] if "greedy" in each["text"]]
    assert "adds to them are refused" in warning["text"]
    assert "bkbox top --by owner" in warning["command"]
    shown = bkbox("status", "--config", str(bookie.config)).stdout
    assert "1 of 3 owners are over: 'greedy' has" in " ".join(shown.split())
    # Deleted ledgers count no more, though nothing has collected them.
    delete(bookie, GREEDY[:5])
    takes_adds(bookie, GREEDY[7])
    assert not owners(bookie)["greedy"]["exceeded"]
    assert bookie.stop() == 0


def test_who_is_over_stays_so_whoever_is_killed_and_away(bookie: BookieProcess) -> None:
    fill(bookie, 20)
    comes_over(bookie)
    bookie.kill_frontends()
    assert add(bookie, GREEDY[1]) == ETOOMANY, "the first add that the next front-end sees"
    with metadata_away(bookie):
        wait_for(lambda: bookie.status()["quotas"]["problem"], "a look that fails")
        bookie.kill_frontends()
        assert add(bookie, GREEDY[1]) == ETOOMANY
        (repair,) = bookie.children("repair")
        repair.kill()
        wait_for(lambda: bookie.children("repair") not in ([], [repair]), "repair to be back")
        for _ in range(10):
            assert add(bookie, GREEDY[1]) == ETOOMANY
            assert add(bookie, MODEST[1]) == EOK
        assert owners(bookie)["greedy"]["exceeded"]
    looks(bookie)
    assert add(bookie, GREEDY[1]) == ETOOMANY
    (repair,) = bookie.children("repair")
    repair.kill()
    bookie.worker(0).kill()
    looks(bookie)
    put(bookie, quotas=["greedy=1G"])
    takes_adds(bookie, GREEDY[1])


def test_quotas_that_come_and_go_while_it_runs(make_bookie: MakeBookie) -> None:
    bookie = make_bookie(quota_interval_s=600).start()
    create(bookie)
    fill(bookie, 20)
    assert bookie.status()["quotas"]["checked_ms"] == 0
    put(bookie, quotas=["*=20K"])
    comes_over(bookie)
    assert add(bookie, MODEST[0]) == ETOOMANY
    assert add(bookie, NAMELESS[0]) == ETOOMANY
    put(bookie, quotas=["*=1G", "modest=100K"])
    takes_adds(bookie, GREEDY[0])
    assert add(bookie, MODEST[0]) == ETOOMANY
    put(bookie, quotas=[])
    takes_adds(bookie, MODEST[0])
    assert bookie.status()["quotas"]["owners"] == []
    with pytest.raises(AssertionError, match="'GX' is none of the units"):
        put(bookie, quotas=["modest=1GX"])
    assert bookie.stop() == 0


def test_what_compaction_and_the_trash_make_of_it(tmp_path: Path) -> None:
    """What was copied counts once, and what is in the trash not at all, over restarts."""
    settings = {**SETTINGS, "gc_trash_s": 600.0, "quotas": "*=1G", "quota_interval_s": INTERVAL_S}
    cluster = Cluster(tmp_path, bookies=1, **settings)
    try:
        [bookie] = cluster.bookies
        gone, kept, stray = cluster.write([PAYLOAD] * 300, ledgers=3)
        looks(bookie)
        each = owners(bookie)["(none)"]["bytes"] // 3
        assert each // (len(raw.make_entry(1, 0, PAYLOAD)) + 16) in range(295, 301)
        put_elsewhere(bookie, stray)
        looks(bookie)
        assert owners(bookie)["(none)"]["bytes"] == 3 * each
        assert cluster.job(JobKind.GC, all="true").counts["ledgers_trash"] == 1
        looks(bookie)
        assert owners(bookie)["(none)"]["bytes"] == 2 * each
        cluster.delete(gone)
        looks(bookie)
        assert owners(bookie)["(none)"]["bytes"] == each
        cluster.job(JobKind.GC, empty_trash="true")
        assert cluster.job(JobKind.COMPACTION).counts["segments_removed"] >= 2
        for _ in range(2):
            looks(bookie)
            assert owners(bookie)["(none)"]["bytes"] == each
            assert bookie.stop() == 0
            bookie.start()
        with RawClient(bookie.port) as client:
            assert client.read(kept, 299).code == EOK
    finally:
        cluster.close()
