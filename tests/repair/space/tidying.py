"""Clusters of small segments for the tests of space, their jobs, and a few words about their disks."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any, TypeVar

from bkbox.api.admin import client as admin
from bkbox.api.admin.socket_path import admin_socket_path
from bkbox.base.ids import LedgerId
from bkbox.client.client import Client, connect
from bkbox.config.load import load
from bkbox.jobs.job import Job, JobKind, JobState
from bkbox.metadata import connect as connect_metadata
from bkbox.storage.disk.identity import read_identity
from bkbox.storage.files import RealFiles
from bkbox.storage.log.records import Kind
from bkbox.storage.log.segment import ENTRY_LOG_MAGIC, ScannedRecord, SegmentName, scan
from bkbox.wire.metadata.ledger import LedgerMetadata
from tests.harness.processes import BookieProcess
from tests.harness.waiting import wait_for

T = TypeVar("T")

SETTINGS: dict[str, object] = {
    "segment_bytes_max": 1 << 18,
    "checkpoint_bytes": 1 << 17,
    "disk_usage_max": 1.0,
    "disk_reserve_bytes": 0,
    "gc_interval_s": 0.0,
    "gc_confirm_s": 0.2,
    "gc_trash_s": 0.0,
    "compaction_interval_s": 0.0,
    "scrub_interval_s": 0.0,
    "compaction_garbage_ratio": 0.3,
}


class Cluster:
    """Bookies of one disk each, over SQLite."""

    def __init__(self, root: Path, bookies: int = 3, **settings: object) -> None:
        self.uri = f"sqlite:{root}/metadata.db"
        self.bookies = [
            BookieProcess(root, self.uri, name=f"bookie{number}") for number in range(bookies)
        ]
        for bookie in self.bookies:
            bookie.init(disks=1, **{**SETTINGS, **settings})  # type: ignore[arg-type]
        for bookie in self.bookies:
            bookie.start(wait=False)
        for bookie in self.bookies:
            bookie.wait_ready()

    def close(self) -> None:
        for bookie in self.bookies:
            bookie.ensure_gone()

    # ---- ledgers ----------------------------------------------------------------------------

    def run(self, work: Any) -> Any:
        """Run ``work(client)``, a coroutine."""

        async def go() -> Any:
            async with connect(self.uri, rng=random.Random(1)) as client:
                return await work(client)

        return asyncio.run(go())

    def write(self, payloads: list[bytes], ledgers: int = 1) -> list[int]:
        """Closed ledgers on all bookies, whose entries lie among one another; their ids."""
        size = len(self.bookies)

        async def go(client: Client) -> list[int]:
            writers = [
                await client.create_ledger(ensemble_size=size, write_quorum=size, ack_quorum=size)
                for _ in range(ledgers)
            ]
            for start in range(0, len(payloads), 20):
                for writer in writers:
                    await writer.append_many(payloads[start : start + 20])
            for writer in writers:
                await writer.close()
            return [int(writer.ledger_id) for writer in writers]

        found: list[int] = self.run(go)
        return found

    def delete(self, *ledgers: int) -> None:
        async def go() -> None:
            async with await connect_metadata(self.uri) as store:
                for ledger in ledgers:
                    await store.delete_ledger(LedgerId(ledger))

        asyncio.run(go())

    def create(self, metadata: LedgerMetadata) -> None:
        """Put a ledger's metadata into the store, as a backup would."""

        async def go() -> None:
            async with await connect_metadata(self.uri) as store:
                await store.create_ledger(metadata)

        asyncio.run(go())

    # ---- jobs -------------------------------------------------------------------------------

    def job(
        self, kind: JobKind, bookie: int = 0, *, ends: JobState = JobState.DONE, **arguments: str
    ) -> Job:
        """Run a job to its end."""
        path = socket_of(self.bookies[bookie])
        number = admin.start_job(path, kind, arguments).id
        job: Job = wait_for(lambda: _ended(admin.job(path, number)), f"the end of job {number}", 60)
        assert job.state is ends, (job.state, job.error, job.step, self.bookies[bookie].stderr)
        return job


def _ended(job: Job) -> Job | None:
    return job if job.state.ended else None


def socket_of(bookie: BookieProcess) -> Path:
    return admin_socket_path(load(bookie.config, {}))


def log_of(bookie: BookieProcess) -> list[Path]:
    """Its segments."""
    return sorted((bookie.disks[0] / "entrylog").glob("*.log"))


def log_bytes(bookie: BookieProcess) -> int:
    return sum(path.stat().st_size for path in log_of(bookie))


def entries_in(bookie: BookieProcess, path: Path) -> list[tuple[int, int, int, int]]:
    """(ledger, entry, offset of the record, bytes of the entry) in a segment."""
    identity = read_identity(RealFiles(), bookie.disks[0])
    assert identity is not None
    name = SegmentName(ENTRY_LOG_MAGIC, identity.uuid, int(path.stem))
    file = RealFiles().open_read(path)
    try:
        return [
            (
                int.from_bytes(item.body[:8], "big"),
                int.from_bytes(item.body[8:16], "big"),
                item.offset,
                len(item.body),
            )
            for item in scan(file, name, 0)
            if isinstance(item, ScannedRecord) and item.kind is Kind.ENTRY
        ]
    finally:
        file.close()


def settle(bookie: BookieProcess) -> None:
    """Stop and start it: everything is covered by a checkpoint."""
    assert bookie.stop() == 0
    bookie.start()
