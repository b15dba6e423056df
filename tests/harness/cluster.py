"""Metadata that tests write by hand, and changes to a bookie's disks while it is down."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterable
from pathlib import Path

from bkbox.base.ids import BookieId, EntryId, LedgerId
from bkbox.base.values import as_dict
from bkbox.metadata import connect
from bkbox.storage.checksummed_document import write_document
from bkbox.storage.disk.dirty_marker import MARKER_NAME, read_marker, record_failure
from bkbox.storage.files import RealFiles
from bkbox.wire.metadata.cookie import cookie_of, encode
from bkbox.wire.metadata.ledger import DigestType, Fragment, LedgerMetadata, LedgerState

NOBODY = "127.0.0.1:1"
"""A bookie that never answers."""


def ledger_of(
    ledger: int,
    *ensembles: Iterable[str],
    state: LedgerState = LedgerState.OPEN,
    last_entry: int = -1,
) -> LedgerMetadata:
    """Metadata with one fragment of ten entries per ensemble; CRC32 digests, the empty password."""
    fragments = tuple(
        Fragment(EntryId(10 * number), tuple(map(BookieId, ensemble)))
        for number, ensemble in enumerate(ensembles)
    )
    size = len(fragments[0].ensemble)
    return LedgerMetadata(
        LedgerId(ledger),
        size,
        size,
        size,
        state,
        fragments,
        last_entry=EntryId(last_entry) if state is LedgerState.CLOSED else EntryId(-1),
        length=last_entry + 1 if state is LedgerState.CLOSED else 0,
        digest_type=DigestType.CRC32,
    )


def create_ledgers(uri: str, ledgers: Iterable[LedgerMetadata]) -> None:
    async def create() -> None:
        async with await connect(uri) as store:
            for metadata in ledgers:
                await store.create_ledger(metadata)

    asyncio.run(create())


def delete_cookie(uri: str, bookie: str) -> None:
    async def delete() -> None:
        async with await connect(uri) as store:
            await store.delete_cookie(BookieId(bookie))

    asyncio.run(delete())


def rewrite_cookie(uri: str, bookie: str) -> None:
    """Writes the stored bytes once more: only the version changes."""

    async def rewrite() -> None:
        async with await connect(uri) as store:
            found = await store.read_cookie(BookieId(bookie))
            assert found is not None
            await store.write_cookie(BookieId(bookie), found.value, found.version)

    asyncio.run(rewrite())


def write_java_cookie(uri: str, bookie: str) -> None:
    """Replaces the stored cookie by one of Apache's bookies."""

    async def write() -> None:
        async with await connect(uri) as store:
            found = await store.read_cookie(BookieId(bookie))
            java = cookie_of(
                bookie,
                ["/var/bookkeeper/journal"],
                ["/var/bookkeeper/ledgers"],
                None,
                await store.instance_id(),
            )
            version = found.version if found is not None else None
            await store.write_cookie(BookieId(bookie), encode(java), version)

    asyncio.run(write())


def recreate_cookie(uri: str, bookie: str) -> None:
    """Deletes the cookie and creates it with the same bytes."""

    async def recreate() -> None:
        async with await connect(uri) as store:
            found = await store.read_cookie(BookieId(bookie))
            assert found is not None
            await store.delete_cookie(BookieId(bookie))
            await store.write_cookie(BookieId(bookie), found.value, None)

    asyncio.run(recreate())


def bookies_of(uri: str) -> dict[str, bool]:
    """Registered bookies; True for one that is registered as read-only."""

    async def read() -> dict[str, bool]:
        async with await connect(uri) as store:
            return {str(name): found.read_only for name, found in (await store.bookies()).items()}

    return asyncio.run(read())


def pretend_another_boot(disks: Iterable[Path]) -> None:
    """Changes the dirty markers as if the host had been restarted since."""
    files = RealFiles()
    for disk in disks:
        marker = read_marker(files, disk)
        assert marker is not None, f"{disk} has no dirty marker"
        runs = [{**as_dict(run), "boot_id": "another-boot"} for run in marker.runs]
        write_document(files, disk / MARKER_NAME, {**as_dict(marker), "runs": runs})


def pretend_a_failed_sync(disks: Iterable[Path]) -> None:
    """As if the host had been restarted since, and a sync had failed: every ledger may lack entries, not only active
    ones."""
    disks = list(disks)
    pretend_another_boot(disks)
    for disk in disks:
        record_failure(RealFiles(), disk, "a sync failed")


def empty(disk: Path) -> None:
    """Makes a disk look lost and replaced: its folder is empty."""
    shutil.rmtree(disk)
    disk.mkdir()
