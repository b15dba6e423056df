"""A cluster of real bookies, ledgers of every kind on it, and a look at each single copy."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from bkbox.base.ids import BookieId, EntryId, LedgerId
from bkbox.client import LedgerWriter
from bkbox.client import connect as connect_client
from bkbox.client.client import Client
from bkbox.client.options import ClientOptions
from bkbox.jobs.context import JobContext
from bkbox.metadata import connect, create
from bkbox.metadata.base import MetadataStore
from bkbox.repair.replication.auditor import Auditor, AuditorSettings
from bkbox.repair.replication.entry_inventory import runs_of
from bkbox.repair.replication.lost_bookie_tracker import LostBookies
from bkbox.repair.replication.replication_worker import ReplicationSettings, ReplicationWorker
from bkbox.wire.availability import Availability
from bkbox.wire.codes import Code
from bkbox.wire.digest import DigestManager
from bkbox.wire.metadata.ledger import DigestType, LedgerMetadata, LedgerState
from bkbox.wire.write_set import write_set
from tests.harness.cluster import pretend_another_boot
from tests.harness.processes import BookieProcess, unsafe_environment
from tests.jobs.works import FreeWork

PASSWORD = b"secret"


def payload(ledger: int, entry: int, size: int = 300) -> bytes:
    return random.Random(ledger * 100_003 + entry).randbytes(size)


class Cluster:
    """Bookies of one disk each."""

    def __init__(self, root: Path, uri: str | None = None) -> None:
        self.root = root
        self.uri = uri or f"sqlite:{root}/metadata.db"
        self.bookies: list[BookieProcess] = []

    def start(self, count: int, *, unsafe: str = "", **settings: object) -> list[BookieProcess]:
        """So many more. ``unsafe``: see ``unsafe_environment``; it ends with the first restart."""
        environment = unsafe_environment(unsafe) if unsafe else None
        new = []
        for _ in range(count):
            name = f"bookie{len(self.bookies)}"
            bookie = BookieProcess(self.root, self.uri, name=name)
            self.bookies.append(bookie)
            bookie.init(disks=1, **settings)
            new.append(bookie)
        for bookie in new:
            bookie.start(wait=False, environment=environment)
        for bookie in new:
            bookie.wait_ready()
        return new

    def lose_power(self) -> None:
        """All hosts lose their power, and all bookies are started again."""
        for bookie in self.bookies:
            bookie.kill()
            pretend_another_boot(bookie.disks)
        for bookie in self.bookies:
            bookie.start(wait=False)
        for bookie in self.bookies:
            bookie.wait_ready()

    def close(self) -> None:
        for bookie in self.bookies:
            bookie.ensure_gone()


async def write_ledgers(uri: str, ledgers: int, *, close: bool) -> list[int]:
    """Ledgers of five entries on two bookies, closed or left open."""
    found = []
    async with connect_client(uri) as client:
        for _ in range(ledgers):
            writer = await client.create_ledger(2, 2, 2)
            await writer.append_many([b"%d" % entry for entry in range(5)])
            await (writer.close() if close else writer.abort())
            found.append(writer.ledger_id)
    return found


@dataclass
class Hands:
    """What a test works with inside of its event loop."""

    store: MetadataStore
    client: Client
    writers: list[LedgerWriter] = field(default_factory=list)

    async def write(
        self, entries: int = 60, *sizes: int, digest: DigestType = DigestType.CRC32C
    ) -> LedgerWriter:
        """A ledger with so many entries, all copies written, its writer still there."""
        e, wq, aq = sizes or (3, 3, 2)
        writer = await self.client.create_ledger(e, wq, aq, digest, PASSWORD)
        self.writers.append(writer)
        await self.append(writer, entries)
        return writer

    async def append(self, writer: LedgerWriter, entries: int) -> None:
        first = writer.last_add_confirmed + 1
        new = range(first, first + entries)
        if new:
            await writer.append_many([payload(writer.ledger_id, entry) for entry in new])

    async def closed(
        self, entries: int = 60, *sizes: int, digest: DigestType = DigestType.CRC32C
    ) -> LedgerId:
        writer = await self.write(entries, *sizes, digest=digest)
        await writer.close()
        return writer.ledger_id

    async def in_recovery(self, entries: int = 60) -> LedgerId:
        """A recovery took it over, and died."""
        writer = await self.write(entries)
        await writer.abort()
        found = await self.store.read_ledger(writer.ledger_id)
        taken = replace(found.value, state=LedgerState.IN_RECOVERY)
        await self.store.write_ledger(taken, found.version)
        return writer.ledger_id

    async def metadata(self, ledger: LedgerId) -> LedgerMetadata:
        return (await self.store.read_ledger(ledger, linearizable=True)).value

    async def assert_whole(self, ledger: LedgerId, entries: int | None = None) -> LedgerMetadata:
        """The ledger is closed, and every bookie of every write set has its entry, read from it alone."""
        metadata = await self.metadata(ledger)
        assert metadata.state is LedgerState.CLOSED
        if entries is not None:
            assert metadata.last_entry == entries - 1
        assert metadata.bookies() <= (await self.store.bookies()).keys()
        await self.assert_copies(metadata, range(metadata.last_entry + 1))
        return metadata

    async def assert_copy(
        self, metadata: LedgerMetadata, bookie: BookieId | str, entries: Iterable[int]
    ) -> None:
        """This bookie has these entries, each as it was written."""
        assert metadata.digest_type is not None
        digests = DigestManager(metadata.ledger_id, metadata.digest_type, PASSWORD)
        for entry in entries:
            reply = await self.client.pool.read(
                BookieId(bookie), metadata.ledger_id, EntryId(entry), None
            )
            assert reply.entry is not None, f"{bookie}, entry {entry}: {reply.status}"
            found = digests.verify(reply.entry, entry)
            assert found.payload == payload(metadata.ledger_id, entry, len(found.payload))

    async def assert_copies(self, metadata: LedgerMetadata, entries: Iterable[int]) -> None:
        ledger = metadata.ledger_id
        assert metadata.digest_type is not None
        digests = DigestManager(ledger, metadata.digest_type, PASSWORD)

        async def one(bookie: BookieId, entry: int) -> bytes:
            reply = await self.client.pool.read(bookie, ledger, EntryId(entry), None)
            assert reply.status is Code.EOK, f"{bookie}, entry {entry}: {reply.status}"
            assert reply.entry is not None
            found = digests.verify(reply.entry, entry)
            assert found.payload == payload(ledger, entry, len(found.payload))
            return bytes(reply.entry)

        for entry in entries:
            ensemble = metadata.fragment_of(entry).ensemble
            positions = write_set(entry, metadata.ensemble_size, metadata.write_quorum)
            copies = await asyncio.gather(*(one(ensemble[at], entry) for at in positions))
            assert len(set(copies)) == 1, "copies are the same to the byte"

    async def lacking(self, ledger: LedgerId) -> dict[BookieId, set[int]]:
        """Entries up to the end of the ledger, or its LAC, that bookies do not list, by the arithmetic of striping
        alone."""
        metadata = await self.metadata(ledger)
        reader = await self.client.open_ledger(ledger, PASSWORD, recovery=False)
        last = await reader.read_explicit_last_add_confirmed()
        listed: dict[BookieId, set[int]] = {}
        for bookie in metadata.bookies():
            found = await self.client.pool.list_entries(bookie, ledger)
            if isinstance(found, Availability):
                listed[bookie] = {
                    entry for first, end in runs_of(found) for entry in range(first, end + 1)
                }
            else:
                assert found is Code.ENOLEDGER, f"{bookie} lists nothing: {found}"
                listed[bookie] = set()
        starts = [each.first_entry for each in metadata.fragments]
        lacking: dict[BookieId, set[int]] = {}
        for entry in range(last + 1):
            number = sum(start <= entry for start in starts) - 1
            for offset in range(metadata.write_quorum):
                at = (entry + offset) % metadata.ensemble_size
                bookie = metadata.fragments[number].ensemble[at]
                if entry not in listed[bookie]:
                    lacking.setdefault(bookie, set()).add(entry)
        return lacking

    # ---- autorecovery --------------------------------------------------------------------------

    def auditor(
        self,
        work: JobContext | None = None,
        monotonic_s: Callable[[], float] = time.monotonic,
        name: str = "auditor:1",
        **settings: float,
    ) -> Auditor:
        return Auditor(
            work or FreeWork(),
            self.store,
            self.client,
            AuditorSettings(**{"lost_bookie_delay_s": 0, "full_check_s": 0.0, **settings}),  # type: ignore[arg-type]
            name=name,
            rng=random.Random(1),
            wall_ms=lambda: time.time_ns() // 1_000_000,
            monotonic_s=monotonic_s,
        )

    def worker(self, work: JobContext | None = None, **settings: float) -> ReplicationWorker:
        return ReplicationWorker(
            work or FreeWork(),
            self.store,
            self.client,
            ReplicationSettings(
                **{"grace_s": 0.0, "retry_initial_s": 0.05, "retry_max_s": 0.2, **settings}  # type: ignore[arg-type]
            ),
            me=None,
            host="test",
            rng=random.Random(2),
            wall_ms=lambda: time.time_ns() // 1_000_000,
            monotonic_s=time.monotonic,
        )

    async def mark(self, bookie: BookieProcess, *ledgers: LedgerId) -> None:
        for ledger in ledgers:
            await self.store.under_replication.mark(ledger, [bookie.bookie_id], 1)

    async def work_off(self, worker: ReplicationWorker, *, timeout_s: float = 60.0) -> None:
        """Rounds until nothing is marked."""
        async with asyncio.timeout(timeout_s):
            while await self.store.under_replication.count():
                if not await worker.round():
                    await asyncio.sleep(0.1)

    async def bookie_check(self, auditor: Auditor) -> int:
        """Have the auditor look through all ledgers, with no delay; how many it marked."""
        lost = LostBookies()
        lost.see(await self.store.cookies(), await self.store.bookies(), (), 0.0)
        return await auditor.check_bookies(lost, 0, at_once=True)

    async def rename(self, ledger: LedgerId, old: BookieProcess, new: str) -> None:
        """Let the metadata name another bookie, which has nothing."""
        found = await self.store.read_ledger(ledger)
        fragments = tuple(
            replace(
                each,
                ensemble=tuple(
                    BookieId(new) if name == old.bookie_id else name for name in each.ensemble
                ),
            )
            for each in found.value.fragments
        )
        await self.store.write_ledger(replace(found.value, fragments=fragments), found.version)

    async def misname(self, ledger: LedgerId, name: str) -> None:
        """Let the metadata name a bookie that is nowhere in the place of the first of the ensemble."""
        found = await self.store.read_ledger(ledger)
        first = found.value.fragments[0].ensemble[0]
        fragments = tuple(
            replace(
                each, ensemble=tuple(BookieId(name) if x == first else x for x in each.ensemble)
            )
            for each in found.value.fragments
        )
        await self.store.write_ledger(replace(found.value, fragments=fragments), found.version)

    async def wait_gone(self, bookie: BookieProcess) -> None:
        async with asyncio.timeout(60):
            while bookie.bookie_id in await self.store.bookies():
                await asyncio.sleep(0.05)


@asynccontextmanager
async def hands(uri: str, **options: object) -> AsyncIterator[Hands]:
    async with (
        await (create if uri.startswith("sqlite") else connect)(uri) as store,
        Client(store, ClientOptions(**options), random.Random(3)) as client,  # type: ignore[arg-type]
    ):
        our = Hands(store, client)
        try:
            yield our
        finally:
            for writer in our.writers:
                await writer.abort()
