"""Copies of one entry that differ: found by a scrub, mended where the digest or the metadata decides, else named."""

from __future__ import annotations

import struct
from typing import Any

from bkbox.api.admin import client as admin
from bkbox.api.admin.socket_path import admin_socket_path
from bkbox.base.ids import BookieId, EntryId, LedgerId
from bkbox.config.load import load
from bkbox.jobs.job import Job, JobKind
from bkbox.protocol.copy_agreement import agreement
from bkbox.wire.digest import VerifiedEntry
from bkbox.wire.metadata.ledger import LedgerState
from tests.harness import raw
from tests.harness.processes import BookieProcess
from tests.harness.waiting import wait_for
from tests.repair.limbo.phasetwo import (
    StartCluster,
    fill,
    frame,
    ledger_over,
    payload,
    start_cluster,
    store,
)

__all__ = ["start_cluster"]

CLOSED = LedgerState.CLOSED


def scrub(bookie: BookieProcess, **arguments: str) -> Job:
    path = admin_socket_path(load(bookie.config, {}))
    number = admin.start_job(path, JobKind.SCRUB, arguments).id

    def ended() -> Job | None:
        job = admin.job(path, number)
        return job if job.state.ended else None

    job: Job = wait_for(ended, "the end of the scrub", timeout=60)
    assert (job.state.value, job.error) == ("done", "")
    return job


def give(bookie: BookieProcess, ledger: int, entry: int, content: bytes, length: int) -> None:
    """Have a bookie hold another entry than the writer's, with a digest that is right."""
    data = raw.make_entry(ledger, entry, content, entry - 1, length)
    body = struct.pack(">BBH", 2, 1, raw.RECOVERY) + raw.master_key() + data
    with raw.RawClient(bookie.port) as client:
        client.send(struct.pack(">I", len(body)) + body)
        assert client.answer().code == raw.EOK


def content_of(bookie: BookieProcess, ledger: int, entry: int) -> bytes:
    with raw.RawClient(bookie.port) as client:
        answer = client.read(ledger, entry)
        assert answer.code == raw.EOK
        return bytes(answer.body)


def length_to(ledger: int, entry: int) -> int:
    return sum(len(payload(ledger, each)) for each in range(entry + 1))


def test_what_the_digest_or_the_end_decides_is_mended(start_cluster: StartCluster) -> None:
    a, b, c = bookies = start_cluster(3)
    fill(bookies, ledger_over(1, (0, bookies), state=CLOSED, last_entry=99), 100)
    fill(bookies, ledger_over(2, (0, bookies), write_quorum=2, state=CLOSED, last_entry=59), 60)
    store(a, 1, [3], rotten=True)
    store(b, 1, [70], rotten=True)
    store(c, 1, [70, 71], rotten=True)
    give(b, 1, 99, b"another end", length_to(1, 98) + 11)
    store(a, 2, [2], rotten=True)  # it has 0, 2, 3, 5, …
    job = scrub(a)
    assert job.blocked == 0
    assert job.counts["entries_compared"] == 100 + 40
    assert job.counts["entries_differing"] == 5
    assert job.counts["copies_mended"] == 6
    for bookie in bookies:
        for entry in range(100):
            assert content_of(bookie, 1, entry).endswith(payload(1, entry)), (
                bookie.bookie_id,
                entry,
            )
    assert content_of(a, 2, 2).endswith(payload(2, 2))
    assert "entries_differing" not in scrub(b).counts


def test_what_nothing_decides_is_named_and_let_alone(start_cluster: StartCluster) -> None:
    """Two of three have one copy and one has another: heads are not counted."""
    a, b, c = bookies = start_cluster(3)
    fill(bookies, ledger_over(1, (0, bookies), state=CLOSED, last_entry=9), 10)
    other = b"y" * len(payload(1, 4))
    give(c, 1, 4, other, length_to(1, 4))
    for bookie in (a, c):
        [blocker] = scrub(bookie).blockers
        assert blocker.ledger == 1
        assert "1 entry differs between the bookies; entry 4" in blocker.reason
        assert all(each.bookie_id in blocker.reason for each in bookies)
        assert "nothing proves which copy is right" in blocker.what_to_do
    assert content_of(c, 1, 4).endswith(other)
    assert content_of(b, 1, 4).endswith(payload(1, 4))
    assert scrub(a, disks_only="true").blocked == 0
    # Not of a ledger that is written: its last entries may differ, and nobody was told of them.
    fill(bookies, ledger_over(2, (0, bookies)), 5)
    give(b, 2, 4, b"another", length_to(2, 3) + 7)
    assert [each.ledger for each in scrub(a).blockers] == [1]
    c.kill()
    assert scrub(a).blocked == 0, "who does not answer says nothing"


def verified(entry: int, length: int, content: bytes) -> VerifiedEntry:
    return VerifiedEntry(LedgerId(1), EntryId(entry), EntryId(entry - 1), length, content)


def test_the_decision() -> None:
    names = [BookieId(f"{each}:1") for each in "abc"]
    someone: Any = type("B", (), {})()
    someone.bookie_id = names[0]
    metadata = ledger_over(1, (0, [someone]), state=CLOSED, last_entry=9)
    right, wrong = verified(4, 500, b"right"), verified(4, 500, b"wrong")

    def decide(entry: int, *copies: VerifiedEntry | None) -> tuple[object, ...]:
        found = agreement(metadata, entry, dict(zip(names, copies, strict=False)))
        return (found.right, found.wrong, found.differ)

    a, b, c = names
    assert decide(4, right, right, right._replace(lac=EntryId(-1))) == (a, (), False)
    assert decide(4, None, right, None) == (b, (a, c), True)
    assert decide(4, right, right, wrong) == (None, (), True)
    assert decide(4, None, right, wrong) == (None, (), True)
    assert decide(4, None, None) == (None, (), True)
    assert decide(4, right) == (a, (), False)
    assert decide(4, right, right._replace(length=400)) == (None, (), True)
    end = verified(9, metadata.length, b"right")
    assert decide(9, end._replace(length=1), end, None) == (b, (a, c), True)
    assert decide(9, end._replace(payload=b"other"), end) == (None, (), True)
    assert frame(1, 9, 8)[-5:] == payload(1, 9)[-5:]
