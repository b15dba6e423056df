"""What a client and a cluster have to show, whoever's they are.

A scenario is a function of ``Parties``: the same functions run with Apache's client against
Apache's bookies, which gives the reference, and then with bkbox on either side, and with mixed
ensembles. ``writer`` writes and ``reader`` reads, recovers and administers; they may be one client.
Ensembles are three bookies, of which there have to be three at least.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

import pytest

from tests.harness import raw
from tests.harness.waiting import wait_for
from tests.interop.clients import Client, Metadata, Refused, Writer, numbered, pattern
from tests.interop.interopcluster import Bookie, InteropCluster

OWN_LEDGERS = count(2**62 + 5)
FRAME_BYTES_MAX = 5 * 1024 * 1024
DIGEST_BYTES = {"CRC32": 8, "CRC32C": 4, "MAC": 20, "DUMMY": 0}
FRAME_OVERHEAD_BYTES = 60


@dataclass
class Parties:
    cluster: InteropCluster
    writer: Client
    reader: Client

    def __str__(self) -> str:
        return f"{self.writer.name} writes, {self.reader.name} reads"


Scenario = Callable[[Parties], None]
V2, V3 = "v2", "v3"
_SCENARIOS: dict[Scenario, tuple[str, ...]] = {}


def scenario(*protocols: str) -> Callable[[Scenario], Scenario]:
    """Marks a scenario that both clients can take part in with these protocols."""

    def add(function: Scenario) -> Scenario:
        _SCENARIOS[function] = protocols
        return function

    return add


def scenarios(only: Collection[Scenario] = ()) -> list[object]:
    """Pairs of scenario and protocol, of all scenarios or of some, for ``pytest.mark.parametrize``."""
    return [
        pytest.param(function, protocol, id=f"{function.__name__}-{protocol}")
        for function, protocols in _SCENARIOS.items()
        for protocol in protocols
        if not only or function in only
    ]


# ---- what is written is read ------------------------------------------------------------------------


def check_digest(parties: Parties, digest: str, password: bytes) -> None:
    """Create, append, append async, close, open with and without recovery, read, delete; and who
    has the wrong password gets nowhere."""
    key = {"digest": digest, "password": password}
    writer = parties.writer.create(3, 2, 2, **key)
    ledger = writer.ledger
    payloads = [b"", b"x", bytes(range(256)) * 400, *(pattern(n, 100) for n in range(60))]
    for entry in range(3):
        assert writer.append(payloads[entry]) == entry
    assert writer.append_async(60, 100) == 62
    writer.close()
    metadata = parties.reader.metadata(ledger)
    assert metadata == parties.writer.metadata(ledger)
    assert (metadata.state, metadata.last) == ("CLOSED", 62)
    assert metadata.length == sum(map(len, payloads))
    assert (metadata.digest, metadata.password) == (digest, password)
    for recovery in (True, False):
        reader = parties.reader.open(ledger, **key, recovery=recovery)
        assert reader.lac() == 62
        assert reader.read(0, 62) == numbered(payloads)
        assert reader.read(61, 62) == numbered(payloads[61:], 61)
        assert_refused(Refused.PAST_END, lambda reader=reader: reader.read(60, 63))
    for wrong in (b"wrong", password + b"x"):
        with pytest.raises(Refused) as refusal:
            parties.reader.open(ledger, digest=digest, password=wrong)
        assert refusal.value.kind == Refused.UNAUTHORIZED
    parties.reader.delete(ledger)


@scenario(V2, V3)
def quorum_sizes(parties: Parties) -> None:
    """Every copy is where the write sets say, byte for byte alike, and nowhere else."""
    for e, wq, aq in ((1, 1, 1), (2, 2, 1), (3, 2, 2), (3, 3, 2), (3, 3, 3)):
        writer = parties.writer.create(e, wq, aq)
        writer.append_async(7, 50)
        writer.close()
        metadata = parties.reader.metadata(writer.ledger)
        assert (metadata.e, metadata.wq, metadata.aq) == (e, wq, aq)
        reader = parties.reader.open(writer.ledger)
        assert reader.read(0, 6) == numbered([pattern(n, 50) for n in range(7)])
        wait_for(lambda metadata=metadata: all_copies_there(metadata), "every copy to be written")
        for entry in range(7):
            copies = copies_of(parties.cluster, metadata, entry)
            holders = set(metadata.holders(entry))
            assert {where for where, copy in copies.items() if copy is not None} == holders
            assert len({copies[holder] for holder in holders}) == 1


@scenario(V2, V3)
def large_entries(parties: Parties) -> None:
    """The largest entry that fits into a frame, and one that is larger."""
    writer = parties.writer.create(3, 3, 2)
    size = FRAME_BYTES_MAX - FRAME_OVERHEAD_BYTES - DIGEST_BYTES["CRC32C"]
    if parties.writer.protocol == V3:
        size -= 128  # the frame of a v3 request is a little larger
    sizes = [1 << 20, size, 3 << 20]
    for entry, each in enumerate(sizes):
        assert writer.append(pattern(entry, each)) == entry
    writer.close()
    reader = parties.reader.open(writer.ledger)
    for entry, each in enumerate(sizes):
        assert reader.read(entry, entry) == [(entry, pattern(entry, each))]


@scenario(V2, V3)
def custom_metadata(parties: Parties) -> None:
    custom = {"application": b"interop", "empty": b"", "binary": bytes(range(256)), "ü": b"\0"}
    writer = parties.writer.create(3, 3, 2, custom=custom)
    assert parties.reader.metadata(writer.ledger).custom == custom
    writer.close()
    assert parties.reader.metadata(writer.ledger).custom == custom


def own_ids(parties: Parties) -> None:
    """A client may choose the id of a ledger, however large, and those of its entries, which it writes in any order."""
    ledger = next(OWN_LEDGERS)
    writer = parties.writer.create(adv=True, ledger=ledger)
    assert writer.ledger == ledger
    with ThreadPoolExecutor(3) as pool:  # an entry is acknowledged after those before it
        order = (2, 0, 1)
        writes = [pool.submit(writer.write, entry, pattern(entry, 30)) for entry in order]
        assert tuple(write.result(60) for write in writes) == order
    writer.close()
    assert ledger in parties.reader.ledgers()
    assert parties.reader.open(ledger).read(0, 2) == numbered([pattern(n, 30) for n in range(3)])
    parties.reader.delete(ledger)
    assert ledger not in parties.writer.ledgers()


@scenario(V2, V3)
def empty_ledger(parties: Parties) -> None:
    """A ledger without entries: closed by its writer, and by a recovery."""
    closed = parties.writer.create()
    closed.close()
    left = parties.writer.create()
    for writer in (closed, left):
        assert parties.reader.open(writer.ledger).lac() == -1
        metadata = parties.reader.metadata(writer.ledger)
        assert (metadata.state, metadata.last, metadata.length) == ("CLOSED", -1, 0)


# ---- ledgers that are being written -----------------------------------------------------------------


@scenario(V2, V3)
def read_while_written(parties: Parties) -> None:
    """Without recovery: what is confirmed, and with it not one entry more unless one insists."""
    writer = parties.writer.create()
    for number in range(5):
        writer.append(pattern(number, 30))
    reader = parties.reader.open(writer.ledger, recovery=False)
    # The last entry is confirmed by the next one, or by the end.
    assert reader.read_lac() == 3
    assert reader.read(0, 3) == numbered([pattern(n, 30) for n in range(4)])
    assert_refused(Refused.PAST_END, lambda: reader.read(0, 4))
    writer.append(pattern(5, 30))
    assert reader.read_lac() == 4
    assert reader.try_read_lac() == 4
    assert reader.read_unconfirmed(4, 5) == numbered([pattern(4, 30), pattern(5, 30)], 4)
    writer.append(pattern(6, 30))  # nobody was fenced
    writer.close()
    assert parties.reader.open(writer.ledger, recovery=False).lac() == 6


@scenario(V2, V3)
def recovery_fences(parties: Parties) -> None:
    """Recovery ends a ledger at what was acknowledged, and its writer with it."""
    writer = parties.writer.create()
    writer.append_async(40, 500)
    reader = parties.reader.open(writer.ledger)
    assert reader.lac() == 39
    assert reader.read(0, 39) == numbered([pattern(n, 500) for n in range(40)])
    assert_refused(Refused.FENCED, lambda: writer.append(b"too late"))
    metadata = parties.reader.metadata(writer.ledger)
    assert (metadata.state, metadata.last, metadata.length) == ("CLOSED", 39, 40 * 500)


@scenario(V2, V3)
def recovery_while_the_writer_hangs(parties: Parties) -> None:
    """A writer hangs with adds under way, is recovered, wakes up, and hears that it is fenced."""
    with parties.writer.another(hangs_alone=True) as hanging, ThreadPoolExecutor(1) as pool:
        writer = hanging.create(3, 3, 2)
        writer.append(b"first")
        append = pool.submit(writer.append_async, 20_000, 100, window=200)
        observer = parties.reader.open(writer.ledger, recovery=False)
        wait_for(lambda: observer.read_lac() > 100, "a hundred entries")
        hanging.suspend()
        try:
            reader = parties.reader.open(writer.ledger)
        finally:
            hanging.resume()
        end = reader.lac()
        assert end >= observer.lac() > 100
        with pytest.raises(Refused) as refusal:
            append.result(60)
        assert refusal.value.kind == Refused.FENCED
        with pytest.raises(Refused) as refusal:
            writer.append(b"too late")
        assert refusal.value.kind in (Refused.FENCED, Refused.CLOSED)
        assert parties.reader.open(writer.ledger).lac() == end
        assert reader.read(1, end) == numbered([pattern(n, 100) for n in range(end)], 1)


@scenario(V2, V3)
def concurrent_recoveries(parties: Parties) -> None:
    """Several recoveries at once, of several clients, come to one end."""
    writer = parties.writer.create()
    writer.append_async(50, 100)
    ledger = writer.ledger
    with ThreadPoolExecutor(2) as pool:
        recoveries = [
            pool.submit(client.recover, ledger, 4) for client in (parties.reader, parties.writer)
        ]
        ends = [end for recovery in recoveries for end in recovery.result(60)]
    # A recovery that another one overtook may end with an error; none ends elsewhere.
    assert {end for end in ends if isinstance(end, int)} == {49}
    metadata = parties.reader.metadata(ledger)
    assert (metadata.state, metadata.last) == ("CLOSED", 49)
    assert parties.reader.open(ledger).read(0, 49) == numbered([pattern(n, 100) for n in range(50)])


# ---- the less usual ways to read --------------------------------------------------------------------


@scenario(V2)
def batch_read(parties: Parties) -> None:
    """Bounded by count and by size; at least one entry, whatever the size."""
    writer = parties.writer.create(3, 3, 2)
    writer.append_async(30, 1000)
    writer.close()
    expected = numbered([pattern(n, 1000) for n in range(30)])
    reader = parties.reader.open(writer.ledger)
    assert reader.batch_read(0, 7, 1 << 20) == expected[:7]
    assert reader.batch_read(10, 100, 1 << 20) == expected[10:]
    some = reader.batch_read(5, 100, 4 * 1100)
    assert some == expected[5 : 5 + len(some)]
    assert 1 <= len(some) <= 4
    assert reader.batch_read(3, 5, 10) == expected[3:4]


@scenario(V3)
def long_poll(parties: Parties) -> None:
    """A read that waits for an entry gets it when it is confirmed, or says so when it is not."""
    writer = parties.writer.create()
    writer.append(b"0")
    writer.append(b"1")
    reader = parties.reader.open(writer.ledger, recovery=False)
    assert reader.read_lac() == 0
    with ThreadPoolExecutor(1) as pool:
        for parallel in (False, True):
            at = reader.lac() + 1
            assert reader.long_poll(at, 200, parallel=parallel) == (at - 1, [])
            poll = pool.submit(reader.long_poll, at, 8_000, parallel=parallel)
            time.sleep(0.1)  # the poll is under way, most likely: it has to work either way
            writer.append(str(at + 1).encode())
            lac, entry = poll.result(20)
            assert lac >= at
            assert entry in ([], [(at, str(at).encode())])
            assert entry or reader.read(at, at) == [(at, str(at).encode())]


@scenario(V2, V3)
def explicit_lac(parties: Parties) -> None:
    """The writer tells its LAC beside its entries: the last entry is readable without another."""
    with parties.writer.another(explicit_lac_ms=50) as telling:
        writer = telling.create()
        writer.append(b"0")
        writer.append(b"1")
        reader = parties.reader.open(writer.ledger, recovery=False)
        wait_for(lambda: reader.explicit_lac() == 1, "the explicit LAC")
        assert reader.read(0, 1) == numbered([b"0", b"1"])
        assert_refused(Refused.PAST_END, lambda: reader.read(0, 2))
        writer.append(b"2")
        writer.close()
        assert parties.reader.open(writer.ledger).lac() == 2


@scenario(V3)
def deferred_sync(parties: Parties) -> None:
    """The LAC of a ledger with deferred sync moves by force alone."""
    writer = parties.writer.create(deferred_sync=True)
    for number in range(5):
        assert writer.append(pattern(number, 30)) == number
    assert writer.lac() == -1
    assert writer.force() == 4
    writer.append(pattern(5, 30))
    assert writer.lac() == 4
    reader = parties.reader.open(writer.ledger, recovery=False)
    wait_for(lambda: reader.read_lac() == 4, "the forced LAC")
    assert writer.force() == 5
    writer.close()
    reader = parties.reader.open(writer.ledger)
    assert reader.read(0, 5) == numbered([pattern(n, 30) for n in range(6)])


@scenario(V3)
def deferred_sync_recovered(parties: Parties) -> None:
    """What was acknowledged without sync is recovered where no bookie was lost."""
    writer = parties.writer.create(deferred_sync=True)
    writer.append_async(20, 100)
    writer.force()
    writer.append_async(10, 100, first=20)
    reader = parties.reader.open(writer.ledger)
    assert reader.lac() >= 19
    end = reader.lac()
    assert reader.read(0, end) == numbered([pattern(n, 100) for n in range(end + 1)])
    assert_refused(Refused.FENCED, lambda: writer.append(b"too late"))


@scenario(V3)
def force_without_deferred_sync(parties: Parties) -> None:
    writer = parties.writer.create()
    writer.append(b"0")
    assert writer.force() == 0
    writer.close()


# ---- ledgers as a whole, and bookies ----------------------------------------------------------------


@scenario(V2, V3)
def delete(parties: Parties) -> None:
    writer = parties.writer.create()
    writer.append(b"0")
    writer.close()
    assert writer.ledger in parties.reader.ledgers()
    parties.reader.delete(writer.ledger)
    assert writer.ledger not in parties.writer.ledgers()
    for ask in (parties.reader.open, parties.reader.metadata, parties.writer.metadata):
        assert_refused(Refused.NO_LEDGER, lambda ask=ask: ask(writer.ledger))


@scenario(V2, V3)
def list_ledgers(parties: Parties) -> None:
    """Both clients list the same ledgers in the same order, the lowest first."""
    made = [parties.writer.create().ledger for _ in range(3)]
    listed = parties.reader.ledgers()
    assert listed == sorted(listed)
    assert set(made) <= set(listed)
    assert parties.writer.ledgers() == listed
    for ledger in made:
        parties.reader.delete(ledger)


@scenario(V2, V3)
def bookie_info(parties: Parties) -> None:
    found = parties.reader.bookie_info()
    assert set(found) == {bookie.bookie_id for bookie in parties.cluster.bookies}
    for free, total in found.values():
        assert 0 < free <= total


@scenario(V3)
def list_of_entries(parties: Parties) -> None:
    """Each bookie lists the entries of which it is to have a copy. (Apache's DbLedgerStorage cannot;
    its SortedLedgerStorage can.)"""
    writer = parties.writer.create(3, 2, 2)
    writer.append_async(20, 50)
    writer.close()
    metadata = parties.reader.metadata(writer.ledger)
    wait_for(lambda: all_copies_there(metadata), "every copy to be written")
    asked = 0
    for bookie in map(parties.cluster.bookie, metadata.ensembles[0]):
        if bookie.lists_entries:
            listed = parties.reader.entries_of(bookie.bookie_id, writer.ledger, 30)
            held = [n for n in range(20) if bookie.bookie_id in metadata.holders(n)]
            assert listed == held
            asked += 1
    assert asked


@scenario(V2, V3)
def a_bookie_dies(parties: Parties) -> None:
    a_bookie_dies_of_kind(parties, parties.cluster.bookies[0].kind)


def a_bookie_dies_of_kind(parties: Parties, kind: str) -> None:
    """A member of the ensemble is killed in the middle of the writing: another takes its place, and
    everything acknowledged is read. Once it is back, it has what it acknowledged."""
    writer, victim = writer_with(parties, kind)
    with ThreadPoolExecutor(1) as pool, restarted(victim):
        first = writer.append_async(100, 200)
        append = pool.submit(writer.append_async, 2000, 200, first=100, window=50)
        observer = parties.reader.open(writer.ledger, recovery=False)
        wait_for(lambda: observer.read_lac() > first, "the first of the entries")
        victim.kill()
        assert append.result(60) == 2099
        writer.close()
        metadata = parties.reader.metadata(writer.ledger)
        assert len(metadata.ensembles) == 2
        assert victim.bookie_id not in metadata.ensembles[max(metadata.ensembles)]
        reader = parties.reader.open(writer.ledger)
        assert reader.read(0, 2099) == numbered([pattern(n, 200) for n in range(2100)])
    held = range(max(metadata.ensembles))
    assert held
    with raw.RawClient(victim.port) as client:
        for entry in held:
            answer = client.read(writer.ledger, entry)
            assert answer.code == raw.EOK
            assert answer.body.endswith(pattern(entry, 200))


# ---- helpers ----------------------------------------------------------------------------------------


def writer_with(parties: Parties, kind: str) -> tuple[Writer, Bookie]:
    """The writer of a ledger on two bookies, one of them of this kind; and that one."""
    while True:
        writer = parties.writer.create(2, 2, 2)
        for member in parties.reader.metadata(writer.ledger).ensembles[0]:
            bookie = parties.cluster.bookie(member)
            if bookie.kind == kind:
                return writer, bookie
        writer.close()


@contextmanager
def restarted(bookie: Bookie) -> Iterator[None]:
    """For a bookie that dies in the block; it runs again afterwards."""
    try:
        yield
    finally:
        bookie.ensure_gone()
        bookie.start()


def copies_of(cluster: InteropCluster, metadata: Metadata, entry: int) -> dict[str, bytes | None]:
    """The entry as each bookie of the cluster holds it; None where it does not."""
    copies = {}
    for bookie in cluster.bookies:
        with raw.RawClient(bookie.port) as client:
            answer = client.read(metadata.ledger, entry)
        assert answer.code in (raw.EOK, raw.ENOENTRY, raw.ENOLEDGER), (bookie.bookie_id, answer)
        copies[bookie.bookie_id] = answer.body if answer.code == raw.EOK else None
    return copies


def all_copies_there(metadata: Metadata) -> bool:
    """Whether every bookie has what it is to have: the ack quorum was enough for the writer."""
    for entry in range(metadata.last + 1):
        for holder in metadata.holders(entry):
            with raw.RawClient(int(holder.rpartition(":")[2])) as client:
                if client.read(metadata.ledger, entry).code != raw.EOK:
                    return False
    return True


def assert_refused(kind: str, call: Callable[[], object]) -> None:
    with pytest.raises(Refused) as refusal:
        call()
    assert refusal.value.kind == kind, refusal.value
