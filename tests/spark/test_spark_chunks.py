"""What tasks read, in every form in which entries come: as columns, one by one, and over what is damaged or gone."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

pytest.importorskip("pyspark")

from pyspark_bookkeeper.chunks import CHUNK_BYTES

from bkbox.base.ids import EntryId, LedgerId
from bkbox.errors import NoSuchEntryError, UnknownEntryError
from bkbox.wire.metadata.ledger import DigestType
from tests.audit.forging import PASSWORD, Place, forge
from tests.audit.forging import payload as forged
from tests.repair.copies import Cluster, Hands, payload
from tests.spark.inprocess import read_here
from tests.spark.sparkledgers import closed, expected, in_cluster


@pytest.mark.parametrize("digest", list(DigestType))
@pytest.mark.parametrize("sizes", [(3, 3, 2), (3, 2, 2), (1, 1, 1)])
def test_every_digest_and_every_stripe(
    cluster: Cluster, digest: DigestType, sizes: tuple[int, int, int]
) -> None:
    ledger = in_cluster(cluster.uri, lambda ours: ours.closed(40, *sizes, digest=digest))
    found = read_here(cluster.uri, ledgers=ledger, password="secret", includeMetadata="true")
    assert found == expected(ledger, entries=40)


def test_sizes_of_entries(cluster: Cluster) -> None:
    sizes = [0, 1, CHUNK_BYTES // 2, 5, 0, CHUNK_BYTES, CHUNK_BYTES + 7, 3, *[10] * 3_000, 100_000]

    async def write(ours: Hands) -> int:
        writer = await ours.client.create_ledger(3, 3, 2)
        await writer.append_many([payload(1, at, size) for at, size in enumerate(sizes)])
        await writer.close()
        return writer.ledger_id

    ledger = in_cluster(cluster.uri, write)
    found = read_here(cluster.uri, ledgers=ledger, maxBytesPerPartition="3m")
    assert [(row[1], len(row[2])) for row in found] == list(enumerate(sizes))
    assert [row[2] for row in found] == [payload(1, at, size) for at, size in enumerate(sizes)]


def test_copies_that_are_damaged_and_entries_that_are_lost(cluster: Cluster) -> None:
    names = [bookie.bookie_id for bookie in cluster.bookies]

    def plant(**wrong: list[Place]) -> int:
        async def go() -> int:
            async with forge(cluster.uri) as found:
                return await found.ledger(names, 60, **wrong)  # type: ignore[arg-type]

        return asyncio.run(go())

    def of(ledger: int, entries: range) -> list[tuple[int, int, bytes]]:
        return [(ledger, entry, forged(ledger, entry)) for entry in entries]

    given = {"password": PASSWORD.decode()}
    two = names[:2]
    healthy = plant(
        flipped=[(entry, name) for entry in (0, 7, 8, 59) for name in two],
        missing=[(entry, name) for entry in (20, 21, 40) for name in two],
    )
    assert read_here(cluster.uri, ledgers=healthy, **given) == of(healthy, range(60))
    gone = plant(missing=[(entry, name) for entry in (0, 30, 31) for name in names])
    left = of(gone, range(1, 30)) + of(gone, range(32, 60))
    assert read_here(cluster.uri, ledgers=gone, failOnDataLoss="false", **given) == left
    with pytest.raises(NoSuchEntryError):
        read_here(cluster.uri, ledgers=gone, **given)
    # What is damaged everywhere may be whole somewhere else: that is no loss, whatever is asked for.
    rotten = plant(flipped=[(30, name) for name in names])
    for lenient in ("true", "false"):
        with pytest.raises(UnknownEntryError, match="entry 30"):
            read_here(cluster.uri, ledgers=rotten, failOnDataLoss=lenient, numRetries=1, **given)


def test_an_ensemble_that_changed(cluster: Cluster) -> None:
    """Two fragments of which the second names the same bookies in another order."""
    ledger = closed(cluster.uri, 50)

    async def cut(ours: Hands) -> None:
        found = await ours.store.read_ledger(LedgerId(ledger))
        (whole,) = found.value.fragments
        later = replace(whole, first_entry=EntryId(17), ensemble=whole.ensemble[::-1])
        both = replace(found.value, fragments=(whole, later))
        await ours.store.write_ledger(both, found.version)

    in_cluster(cluster.uri, cut)
    assert read_here(cluster.uri, ledgers=ledger) == expected(ledger, entries=50)
