"""Phase two on real bookies, one disk of which was lost: every kind of ledger, every kind of peer."""

from __future__ import annotations

import time

from bkbox.storage.disk.dirty_marker import record_failure
from bkbox.storage.files import RealFiles
from bkbox.wire.metadata.ledger import LedgerMetadata, LedgerState
from tests.harness import raw
from tests.harness.cluster import bookies_of
from tests.harness.waiting import wait_for
from tests.repair.limbo.phasetwo import (
    StartCluster,
    blocker_of,
    create,
    delete,
    expected,
    fill,
    held,
    in_recovery,
    ledger_over,
    limbo_of,
    lose_disks,
    metadata_of,
    payload,
    start_cluster,
    store,
    wait_until_repaired,
)

__all__ = ["start_cluster"]

CLOSED = LedgerState.CLOSED


def test_every_kind_of_ledger_is_closed_and_whole_again(start_cluster: StartCluster) -> None:
    a, b, c, d = bookies = start_cluster(4)
    uri = a.metadata
    three = (0, [a, b, c])
    ledgers: dict[str, tuple[LedgerMetadata, int]] = {
        "closed": (ledger_over(1, three, state=CLOSED, last_entry=9), 10),
        "open": (ledger_over(2, three), 10),
        "in recovery": (in_recovery(ledger_over(3, three)), 10),
        "striped, closed": (ledger_over(4, three, write_quorum=2, state=CLOSED, last_entry=19), 20),
        "striped, open": (ledger_over(5, (0, [a, b, c, d]), write_quorum=3), 20),
        "several ensembles, closed": (
            ledger_over(
                6,
                three,
                (7, [b, c, d]),
                (12, [d, b, a]),
                write_quorum=2,
                state=CLOSED,
                last_entry=19,
            ),
            20,
        ),
        "several ensembles, open": (ledger_over(7, (0, [b, c, d]), (5, [b, a, d])), 12),
        "left this bookie, open": (ledger_over(8, three, (6, [d, b, c])), 12),
        "empty, closed": (ledger_over(9, three, state=CLOSED), 0),
        "empty, open": (ledger_over(10, three), 0),
    }
    for metadata, entries in ledgers.values():
        fill(bookies, metadata, entries)
    # Past the LAC, on one bookie alone: never acknowledged, and in the ledger all the same once a recovery saw it.
    create(uri, ledger_over(20, three))
    for bookie in (a, b, c):
        store(bookie, 20, range(5))
    store(b, 20, [5])
    # Each peer lacks what the other one has: the start, the middle, the end.
    create(uri, ledger_over(21, three, state=CLOSED, last_entry=29))
    store(a, 21, range(30))
    store(b, 21, [*range(5, 12), *range(18, 30)])
    store(c, 21, [*range(5), *range(10, 25)])
    # Deleted while this bookie is down.
    fill([a, b, c], ledger_over(22, three, state=CLOSED, last_entry=4), 5)
    a.kill()
    delete(uri, 22)
    a.start()
    lose_disks(a)
    wait_until_repaired(a)
    for kind, (before, entries) in ledgers.items():
        after = metadata_of(uri, before.ledger_id)
        if kind == "left this bookie, open":
            assert after.state is LedgerState.OPEN, "its writer may live"
        else:
            assert (kind, after.state, after.last_entry) == (kind, CLOSED, entries - 1)
            assert after.length == sum(len(payload(after.ledger_id, e)) for e in range(entries)), (
                kind
            )
        mine = expected(before, a, entries)
        assert held(a, before.ledger_id, entries + 3) == {
            entry: payload(before.ledger_id, entry) for entry in mine
        }, kind
    # Who answers first decides whether the unacknowledged entry is in it; whatever was decided, it is whole.
    end = metadata_of(uri, 20).last_entry
    assert end in (4, 5)
    assert [*held(a, 20, end + 1)] == [*range(end + 1)]
    assert held(a, 21, 30) == {entry: payload(21, entry) for entry in range(30)}
    assert held(a, 22, 5) == {}


def test_peers_that_hang_fail_or_rot_are_gone_round(start_cluster: StartCluster) -> None:
    """One peer hangs, one has a damaged record, one a rotten copy; each entry is on one good one."""
    a, b, c, d = bookies = start_cluster(4)
    entries = 120
    fill(bookies, ledger_over(1, (0, bookies), state=CLOSED, last_entry=entries - 1), entries)
    store(c, 1, [7, 8], rotten=True)
    d.stop()
    [segment] = (d.disks[0] / "entrylog").glob("*.log")
    data = bytearray(segment.read_bytes())
    data[data.index(payload(1, 9)[:18])] ^= 1
    segment.write_bytes(data)
    d.start()
    with raw.RawClient(d.port) as client:
        assert client.read(1, 9).code == raw.EIO
    with b.paused():
        began = time.monotonic()
        lose_disks(a)
        wait_until_repaired(a)
        # Once for what was under way at the first time-out, not once for each entry.
        assert time.monotonic() - began < 45
    assert held(a, 1, entries) == {entry: payload(1, entry) for entry in range(entries)}


def test_nobody_has_it_is_a_blocker_that_says_what_each_answered(
    start_cluster: StartCluster,
) -> None:
    a, b, c = start_cluster(3)
    fill([a, b, c], ledger_over(1, (0, [a, b, c]), state=CLOSED, last_entry=5), 3)
    store(b, 1, [4])
    lose_disks(a)
    found = wait_for(lambda: blocker_of(a, 1), "the ledger to be blocked")
    assert found["reason"].startswith("2 entries are missing: entry 3: ")
    for peer in (b, c):
        assert f"{peer.bookie_id} answered ENOENTRY" in found["reason"]
    assert "bkbox ledger explain 1" in found["what_to_do"]
    with raw.RawClient(a.port) as client:
        codes = [client.read(1, entry).code for entry in range(6)]
    assert codes == [raw.EOK] * 3 + [raw.EIO, raw.EOK, raw.EIO], (
        "what is back is served, the rest unknown"
    )
    store(c, 1, [3, 5])
    wait_until_repaired(a)
    assert [*held(a, 1, 6)] == [*range(6)]


def test_an_index_entry_whose_record_is_damaged_is_refilled(start_cluster: StartCluster) -> None:
    a, b = start_cluster(2)
    fill([a, b], ledger_over(1, (0, [a, b]), state=CLOSED, last_entry=7), 8)
    assert a.stop() == 0
    [segment] = (a.disks[0] / "entrylog").glob("*.log")
    data = bytearray(segment.read_bytes())
    data[data.index(payload(1, 3)[:18])] ^= 1
    segment.write_bytes(data)
    record_failure(RealFiles(), a.disks[0], "the test says so")
    a.start()
    wait_until_repaired(a)
    assert held(a, 1, 8) == {entry: payload(1, entry) for entry in range(8)}
    assert limbo_of(a)["entries_copied"] == 1


def test_a_ledger_deleted_in_the_middle_leaves_limbo(start_cluster: StartCluster) -> None:
    a, b = start_cluster(2, jobs_network_bytes_per_second=2000, repair_entries_in_flight=1)
    fill([a, b], ledger_over(1, (0, [a, b]), state=CLOSED, last_entry=199), 200)
    fill([a, b], ledger_over(2, (0, [a, b]), state=CLOSED, last_entry=3), 4)
    b.stop()
    lose_disks(a)
    wait_for(lambda: blocker_of(a, 1), "the ledger to be blocked")
    delete(a.metadata, 1)
    b.start()
    wait_until_repaired(a)
    assert held(a, 2, 4) == {entry: payload(2, entry) for entry in range(4)}


def test_killed_again_and_again_it_goes_on_where_it_was(start_cluster: StartCluster) -> None:
    """Each life copies some; what was copied stays, and nothing is denied in between."""
    a, b = start_cluster(2, jobs_network_bytes_per_second=5_000, repair_entries_in_flight=1)
    entries = 400
    fill([a, b], ledger_over(1, (0, [a, b]), state=CLOSED, last_entry=entries - 1), entries)

    def there() -> int:
        with raw.RawClient(a.port) as client:
            codes = [client.read(1, entry).code for entry in range(entries)]
        assert set(codes) <= {raw.EOK, raw.EIO}, "in limbo it denies nothing"
        return codes.count(raw.EOK)

    lose_disks(a)
    have = 0
    for _ in range(3):
        some = min(have + 10, entries)
        wait_for(lambda some=some: there() >= some, "some entries to be copied", timeout=60)
        have = there()
        a.kill()
        a.start()
        assert there() >= have, "what was copied stays"
    assert have >= 30
    wait_until_repaired(a)
    assert int(str(limbo_of(a)["entries_copied"])) <= entries - have
    assert held(a, 1, entries + 1) == {entry: payload(1, entry) for entry in range(entries)}


def test_read_only_while_in_limbo_ends_with_limbo(start_cluster: StartCluster) -> None:
    a, b = start_cluster(2, readonly_while_in_limbo="true")
    fill([a, b], ledger_over(1, (0, [a, b]), state=CLOSED, last_entry=4), 5)
    b.stop()
    lose_disks(a)
    wait_for(lambda: blocker_of(a, 1), "the ledger to be blocked")
    assert bookies_of(a.metadata)[a.bookie_id] is True, "registered read-only"
    b.start()
    wait_until_repaired(a)
    wait_for(lambda: not bookies_of(a.metadata)[a.bookie_id], "to be registered writable")
    assert held(a, 1, 5) == {entry: payload(1, entry) for entry in range(5)}
