"""Ledger metadata that no client of BookKeeper writes, in the store when a bookie starts.

A start that has lost nothing does not look at it. One that has lost a disk has to know which ledgers were there: what
it cannot read it names, and it refuses to start until somebody has looked; it never guesses, and never falls over.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from bkbox.base.ids import BookieId, EntryId, LedgerId
from bkbox.errors import EncodingError
from bkbox.wire.metadata import ledger_metadata
from bkbox.wire.metadata.ledger import Fragment, LedgerMetadata, LedgerState
from tests.harness import raw
from tests.harness.cluster import NOBODY, create_ledgers, empty, ledger_of
from tests.harness.fixtures import MakeBookie
from tests.harness.processes import bkbox
from tests.harness.raw import RawClient

US, OTHER = BookieId("127.0.0.1:3181"), BookieId("127.0.0.1:2")
GOOD = ledger_of(1, [US, OTHER])
CLOSED = ledger_of(1, [US, OTHER], state=LedgerState.CLOSED, last_entry=9)


def written(metadata: LedgerMetadata) -> bytes:
    return ledger_metadata.encode(metadata)


def fragments(*starts: int) -> tuple[Fragment, ...]:
    return tuple(Fragment(EntryId(start), (US, OTHER)) for start in starts)


REFUSED = {
    "nothing": b"",
    "zeros": bytes(500),
    "an unknown version": written(GOOD).replace(b"\t3\n", b"\t99\n", 1),
    "a version of many digits": written(GOOD).replace(b"\t3\n", b"\t" + b"9" * 5000 + b"\n", 1),
    "cut": written(GOOD)[:-7],
    "a length beyond its end": written(GOOD)[:30] + b"\xff\xff\xff\xff\x0f" + written(GOOD)[31:],
    "write quorum > ensemble": written(replace(GOOD, write_quorum=3)),
    "ack quorum > write quorum": written(replace(GOOD, ack_quorum=3)),
    "ack quorum 0": written(replace(GOOD, ack_quorum=0)),
    "negative quorums": written(
        replace(GOOD, ensemble_size=-1, write_quorum=-2, ack_quorum=-3, fragments=())
    ),
    "no ensemble": written(replace(GOOD, fragments=())),
    "an ensemble that comes back": written(replace(GOOD, fragments=fragments(0, 10, 0))),
    "an ensemble twice": written(replace(GOOD, fragments=fragments(0, 0))),
    "a fragment before the first entry": written(replace(GOOD, fragments=fragments(-5, 10))),
    "a last entry below none": written(replace(CLOSED, last_entry=EntryId(-7))),
    "a negative length": written(replace(CLOSED, length=-7)),
    "a bookie with a path for a name": written(GOOD).replace(b"127.0.0.1:2", b"..".ljust(11, b"/")),
}

LARGE = replace(GOOD, custom=(("a", bytes(3_000_000)), ("b", b"\x1b[2J\r\n")))
ODD = {
    "three megabytes of custom metadata": LARGE,
    "a bookie twice in an ensemble": replace(GOOD, fragments=(Fragment(EntryId(0), (US, US)),)),
    "three thousand fragments": replace(GOOD, fragments=fragments(*range(3_000))),
    "the largest ids": replace(
        CLOSED, last_entry=EntryId(2**63 - 1), length=2**63 - 1, fragments=fragments(0, 2**63 - 1)
    ),
}
"""What can be read, and is dealt with as with any other."""


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_ledger_has_is_refused(name: str) -> None:
    with pytest.raises(EncodingError):
        ledger_metadata.decode(LedgerId(1), REFUSED[name])


@pytest.mark.parametrize("name", ODD)
def test_what_is_odd_is_read_as_it_is(name: str) -> None:
    assert ledger_metadata.decode(LedgerId(1), written(ODD[name])) == ODD[name]


def test_a_bookie_starts_beside_it_and_after_a_loss_names_it(
    make_bookie: MakeBookie, tmp_path: Path
) -> None:
    bookie = make_bookie(disks=1)
    ids = {name: 10 + number for number, name in enumerate((*REFUSED, *ODD))}
    us = BookieId(bookie.bookie_id)
    create_ledgers(bookie.metadata, [ledger_of(ledger, [us, NOBODY]) for ledger in ids.values()])
    put(tmp_path, {ids[name]: data for name, data in REFUSED.items()})
    named = {name: written(as_seen_by(us, odd)) for name, odd in ODD.items()}
    put(tmp_path, {ids[name]: data for name, data in named.items()})

    bookie.start()
    with RawClient(bookie.port) as client:
        for ledger in ids.values():
            assert client.add(ledger, 0, b"x") == raw.EOK
    assert bookie.status()["state"] == "running"
    assert bookie.stop() == 0
    assert "Traceback" not in bookie.stderr, bookie.stderr

    empty(bookie.disks[0])
    bkbox("cookie", "repair", "--config", str(bookie.config), "--yes")
    done = bkbox("run", "--config", str(bookie.config), check=False)
    assert done.returncode != 0
    assert "ready" not in done.stdout
    assert "Traceback" not in done.stderr
    [said] = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert "ledger 1" in said

    remove(tmp_path, [ids[name] for name in REFUSED])
    bookie.start()
    assert bookie.status()["limbo"]["ledgers"] == len(ODD)
    with RawClient(bookie.port) as client:
        for name in ODD:
            assert client.add(ids[name], 1, b"x") == raw.EFENCED
            assert client.read(ids[name], 0).code == raw.EIO
    assert bookie.stop() == 0


def as_seen_by(us: BookieId, metadata: LedgerMetadata) -> LedgerMetadata:
    made = tuple(
        replace(each, ensemble=tuple(us if one == US else one for one in each.ensemble))
        for each in metadata.fragments
    )
    return replace(metadata, fragments=made)


def put(folder: Path, documents: dict[int, bytes]) -> None:
    with closing(sqlite3.connect(folder / "metadata.db")) as store, store:
        for ledger, data in documents.items():
            store.execute("UPDATE ledger SET metadata = ? WHERE ledger_id = ?", (data, ledger))


def remove(folder: Path, ledgers: list[int]) -> None:
    with closing(sqlite3.connect(folder / "metadata.db")) as store, store:
        store.executemany("DELETE FROM ledger WHERE ledger_id = ?", [(each,) for each in ledgers])
