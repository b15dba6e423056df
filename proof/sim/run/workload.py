"""The actions of clients of the simulated cluster, with the real client: each kind of action is a small program.

All results of a program go to the checks. It may end with an error of bkbox: errors are no violations, false results
are.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Any

from bkbox.base.ids import BookieId, EntryId, LedgerId
from bkbox.client.client import Client
from bkbox.client.ledger.reader import LedgerReader
from bkbox.client.ledger.writer import LedgerWriter
from bkbox.client.options import ClientOptions
from bkbox.errors import BkboxError, NoSuchEntryError
from bkbox.protocol.audit import final_fragments
from bkbox.protocol.rereplication import FragmentRepair, with_replaced
from bkbox.repair.copy.byte_semaphore import WINDOW_BYTES, ByteWindow
from bkbox.repair.copy.entry_source import EntrySource
from bkbox.repair.copy.fragment_copy import copy_fragment
from bkbox.wire.digest import VerifiedEntry
from bkbox.wire.metadata.ledger import DigestType, LedgerState
from proof.sim.plan.profiles import FENCE_LOST, HIDDEN
from proof.sim.plan.schedule import Action, Plan
from proof.sim.world.host import COPIED, Cluster
from proof.sim.world.job_context import SimJobContext
from proof.sim.world.link import Reachability
from proof.sim.world.loop import Process
from proof.sim.world.metadata import StaleView

_PASSWORD = b"secret"


class Ledgers:
    """Ledgers that clients share. ``all``: in the order in which they were created; ``written``: those with an active
    writer; ``clients``: by name."""

    def __init__(self) -> None:
        self.all: list[int] = []
        self.written: dict[int, None] = {}
        self.clients: dict[str, SimClient] = {}


class SimClient:
    """One client machine; after a kill it runs a new process."""

    def __init__(self, cluster: Cluster, plan: Plan, name: str) -> None:
        self.name = name
        self._cluster = cluster
        self._plan = plan
        self._deaths = 0
        self._start()

    def _start(self) -> None:
        cluster, plan = self._cluster, self._plan
        self.process = process = Process(cluster.scheduler, f"{self.name}.{self._deaths}")
        process.reach = Reachability(self.name, cluster.network, cluster.frontend_of)  # type: ignore[attr-defined]
        self._rng = random.Random(f"{plan.seed} {process.name}")  # noqa: S311 - of a seed
        self._client: Client | None = None
        self._options = ClientOptions(
            protocol="v3" if plan.protocol == "v3" else "v2",
            add_timeout_s=2.0,
            read_timeout_s=2.0,
            connect_timeout_s=3.0,
            speculative_read_s=1.0,
            speculative_poll_s=3.0,
            tail_wait_s=15.0,
            tail_poll_s=2.0,
            batch_reads=self._rng.random() < 0.5,
            explicit_lac_interval_s=self._rng.choice((0.0, 0.0, 5.0)),
        )
        self.tasks: list[asyncio.Task[None]] = []
        """The task of the last action that was started."""

    def kill(self) -> None:
        self.process.die("it was killed")
        self._deaths += 1
        self._start()

    @property
    def client(self) -> Client:
        """The client, made at the first use, in the process."""
        if self._client is None:
            store = StaleView(self._cluster.truth, self.process, is_stale=True)
            self._client = Client(store, self._options, self._rng)
        return self._client

    def do(self, action: Action, ledgers: Ledgers) -> None:
        """Starts an action."""
        self.begin(action.kind, action.seed, ledgers)

    def begin(self, kind: str, seed: int, ledgers: Ledgers) -> None:
        rng = random.Random(seed)  # noqa: S311 - of a seed
        program = PROGRAMS[kind]
        run = Program(self._cluster, self._plan, self, rng, ledgers)
        task = self.process.run_task(run.run_program(kind, partial(program, run)))
        self.tasks = [task]


class Program:
    """One action in progress."""

    def __init__(
        self,
        cluster: Cluster,
        plan: Plan,
        client: SimClient,
        rng: random.Random,
        ledgers: Ledgers,
    ) -> None:
        self.cluster = cluster
        self.plan = plan
        self.sim = client
        self.rng = rng
        self.ledgers = ledgers
        self.observer = cluster.observer
        self.process = client.process

    async def run_program(self, kind: str, program: Callable[[], Awaitable[None]]) -> None:
        try:
            await program()
        except BkboxError as error:
            self.process.note("%s: %s: %s", kind, type(error).__name__, error)

    def pick(self) -> int | None:
        """Picks a recent ledger rather than any; one that is being written rather than another."""
        written = list(self.ledgers.written)
        if written and self.rng.random() < 0.6:
            return self.rng.choice(written)
        return self.rng.choice(self.ledgers.all[-8:]) if self.ledgers.all else None

    # ---- writing --------------------------------------------------------------------------------

    async def write(self, *, deferred: bool = False) -> None:
        rng, plan = self.rng, self.plan
        ack_quorum = rng.randint(plan.lossy + 1, min(plan.lossy + 2, len(plan.hosts)))
        write_quorum = rng.randint(ack_quorum, min(ack_quorum + 1, len(plan.hosts)))
        ensemble_size = rng.randint(write_quorum, min(write_quorum + 2, len(plan.hosts)))
        writer = await self.sim.client.create_ledger(
            ensemble_size,
            write_quorum,
            ack_quorum,
            rng.choice((DigestType.CRC32C, DigestType.CRC32C, DigestType.CRC32, DigestType.HMAC)),
            _PASSWORD,
            deferred_sync=deferred,
        )
        ledger = int(writer.ledger_id)
        self.ledgers.all.append(ledger)
        self.ledgers.written[ledger] = None
        self.observer.created(ledger, deferred)
        self.process.note("writes ledger %d", ledger)
        entry = 0
        pauses = rng.choice(
            ((0.0, 0.01, 0.2), (0.0, 0.05, 1.0, 5.0), (0.0, 1.0, 30.0), (20.0, 60.0))
        )
        try:
            for _ in range(rng.randint(1, 25)):
                futures = []
                for _ in range(rng.choice((1, 1, 2, 5, 20))):
                    payload = b"%d.%d." % (ledger, entry) + rng.randbytes(rng.choice((0, 3, 90)))
                    futures.append(self._append(writer, entry, payload, deferred=deferred))
                    entry += 1
                if deferred and rng.random() < 0.7:
                    await asyncio.sleep(rng.choice((0.0, 1.0, 20.0)))
                    self.observer.confirmed(ledger, await writer.force())
                if rng.random() < 0.7:
                    await asyncio.wait(futures)
                await asyncio.sleep(rng.choice(pauses))
            await asyncio.wait(futures)
        finally:
            self.ledgers.written.pop(ledger, None)
            end = rng.random()
            if end < 0.7:
                await self._close(writer)
            elif end < 0.8:
                await writer.abort()

    def _append(
        self, writer: LedgerWriter, entry: int, payload: bytes, *, deferred: bool
    ) -> asyncio.Future[EntryId]:
        ledger = int(writer.ledger_id)
        future = writer.append_nowait(payload)
        self.observer.appended(ledger, entry, payload)
        future.add_done_callback(partial(self._acknowledged, ledger, entry, deferred))
        return future

    def _acknowledged(self, ledger: int, entry: int, deferred: bool, future: Any) -> None:
        if future.cancelled() or future.exception() is not None:
            return
        self.observer.acknowledged(ledger, entry)
        if not deferred:
            self.observer.confirmed(ledger, entry)

    async def _close(self, writer: LedgerWriter) -> None:
        metadata = await writer.close()
        self.observer.ended(self.process.name, int(writer.ledger_id), metadata.last_entry)

    async def write_deferred(self) -> None:
        await self.write(deferred=True)

    async def duel(self) -> None:
        """A writer that goes on, and another client that recovers its ledger meanwhile."""
        rng, hosts = self.rng, len(self.plan.hosts)
        ack_quorum = rng.randint(self.plan.lossy + 1, min(self.plan.lossy + 2, hosts))
        write_quorum = min(ack_quorum + rng.choice((0, 0, 1)), hosts)
        ensemble_size = min(write_quorum + rng.choice((0, 0, 1)), hosts)
        writer = await self.sim.client.create_ledger(
            ensemble_size, write_quorum, ack_quorum, password=_PASSWORD
        )
        ledger = int(writer.ledger_id)
        self.ledgers.all.append(ledger)
        self.observer.created(ledger, False)
        self.process.note("writes ledger %d in a duel", ledger)
        pace_s = rng.choice((0.0, 0.0, 0.0, 0.02, 0.5))
        at = rng.randint(1, rng.choice((8, 8, 20)))
        absent_s = rng.choice(self.plan.absent_s)
        other = self.ledgers.clients[rng.choice(self.plan.clients)]
        self._hinder(rng.choice(self.plan.handicaps), writer, other)
        try:
            for entry in range(rng.randint(1, rng.choice((12, 12, 40)))):
                if entry == at:
                    Program(self.cluster, self.plan, other, rng, self.ledgers).attack(ledger)
                    await asyncio.sleep(absent_s)
                self._append(writer, entry, b"%d.%d." % (ledger, entry), deferred=False)
                await asyncio.sleep(pace_s)
            await asyncio.sleep(5.0)
        finally:
            await writer.abort()

    def _hinder(self, handicap: str, writer: LedgerWriter, other: SimClient) -> None:
        """Injects a network fault between the attacking client and one of the bookies, for a while."""
        if not handicap:
            return
        rng, network = self.rng, self.cluster.network
        bookie = rng.choice(writer.metadata.last_fragment.ensemble)
        seconds = rng.uniform(5.0, 60.0)
        if handicap == HIDDEN:
            network.cut_for(seconds, {(other.name, bookie), (bookie, other.name)})
        else:
            if handicap == FENCE_LOST:
                network.lose_next((other.name, bookie))
            else:
                network.lose_for(seconds, (other.name, bookie), 0.5)
            network.slow_for(seconds, (self.sim.name, bookie), rng.choice((0.3, 1.0, 3.0)))

    def attack(self, ledger: int) -> None:
        """Recovers a ledger, from this client: by a task of its own process, as its client is made there."""
        self.process.run_task(self.run_program("duel", partial(self._recover_here, ledger)))

    # ---- closing --------------------------------------------------------------------------------

    async def recover(self) -> None:
        ledger = self.pick()
        if ledger is not None:
            await self._recover_here(ledger)

    async def _recover_here(self, ledger: int) -> None:
        await self._recover(self.sim.client, ledger)

    async def _recover(self, client: Client, ledger: int) -> None:
        metadata = await client.recover(ledger)
        self.observer.ended(self.process.name, ledger, metadata.last_entry)

    async def recover_together(self) -> None:
        """Several clients recover a ledger at once."""
        ledger = self.pick()
        if ledger is None:
            return
        rng = random.Random(self.rng.getrandbits(32))  # noqa: S311 - of a seed
        clients = [
            Client(
                StaleView(self.cluster.truth, self.process, is_stale=True), self.sim._options, rng
            )
            for _ in range(self.rng.randint(2, 3))
        ]
        results = await asyncio.gather(
            *(self._recover_later(client, ledger) for client in clients), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, BkboxError):
                raise result

    async def _recover_later(self, client: Client, ledger: int) -> None:
        await asyncio.sleep(self.rng.choice((0.0, 0.01, 0.5)))
        await self._recover(client, ledger)

    async def delete(self) -> None:
        ledger = self.pick()
        if ledger is None:
            return
        found = self.cluster.truth.newest(ledger)
        if found is not None and found.value.state is LedgerState.CLOSED:
            await self.sim.client.delete_ledger(ledger)

    async def copy_by_hand(self) -> None:
        """Does what Java's recoverBookieData does: copies a fragment of a closed ledger to another bookie, and then
        names that in the metadata. Nothing records meanwhile that the copy is in progress."""
        rng, client, truth = self.rng, self.sim.client, self.cluster.truth
        closed = [
            found
            for ledger in self.ledgers.all[-8:]
            if (found := truth.newest(ledger)) is not None
            and found.value.state is LedgerState.CLOSED
            and found.value.last_entry is not None
            and found.value.last_entry >= 0
        ]
        if not closed:
            return
        found = rng.choice(closed)
        metadata = found.value
        others = sorted(set(self.cluster.hosts) - set(metadata.bookies()))
        parts = [part for part in final_fragments(metadata) if part[1]]
        if not others or not parts:
            return
        target = self.cluster.hosts[rng.choice(others)]
        index, entries = rng.choice(parts)
        fragment = metadata.fragments[index]
        new = {rng.randrange(len(fragment.ensemble)): BookieId(target.name)}
        repair = FragmentRepair(fragment.first_entry, entries, fragment.ensemble, tuple(new), {})
        registered = {BookieId(name) for name in self.cluster.hosts}
        source = EntrySource(client.pool, metadata, registered, {})
        work, window = SimJobContext(), ByteWindow(WINDOW_BYTES)
        self.cluster.copying[target.name] += 1
        try:
            await copy_fragment(source, repair, new, work, window)
            self.process.note("has copied ledger %d to %s", metadata.ledger_id, target.name)
            trap = self.cluster.traps.pop(COPIED, None)
            if trap is not None:
                trap(target)
            await asyncio.sleep(rng.choice((0.1, 5.0, 20.0)))
            after = with_replaced(metadata, repair, new)
            if after is not None:
                store = StaleView(truth, self.process)
                await store.write_ledger(after, found.version)
                self.cluster.counts["copies named by hand"] += 1
                pool, ledger = client.pool, metadata.ledger_id
                bookie = BookieId(target.name)
                for entry in entries:  # the observer gets each result
                    await pool.read(bookie, ledger, EntryId(entry), None)
        finally:
            self.cluster.copying[target.name] -= 1

    # ---- reading --------------------------------------------------------------------------------

    async def read(self) -> None:
        ledger = self.pick()
        if ledger is None:
            return
        reader = await self.sim.client.open_ledger(ledger, _PASSWORD, recovery=False)
        name = f"{self.process.name} {self.rng.getrandbits(32)}"
        for _ in range(self.rng.randint(1, 4)):
            explicit = self.rng.random() < 0.3
            if explicit:
                lac = await reader.read_explicit_last_add_confirmed()
            else:
                lac = await reader.read_last_add_confirmed()
            self.observer.heard_lac(name, ledger, lac)
            if lac >= 0:
                first = self.rng.randint(0, lac)
                await self.read_range(reader, first, min(lac, first + 5))
            await asyncio.sleep(self.rng.choice((0.0, 1.0, 10.0)))

    async def read_range(self, reader: LedgerReader, first: int, last: int) -> None:
        ledger = int(reader.ledger_id)
        expected = first
        try:
            async with aclosing(reader.read(first, last)) as entries:
                async for entry in entries:
                    self._found(entry)
                    expected = entry.entry_id + 1
        except NoSuchEntryError:
            self.observer.absent(self.process.name, ledger, expected)
            raise

    def _found(self, entry: VerifiedEntry) -> None:
        self.observer.found(self.sim.name, int(entry.ledger_id), int(entry.entry_id), entry.payload)

    async def tail(self) -> None:
        ledger = self.pick()
        if ledger is None:
            return
        reader = await self.sim.client.open_ledger(ledger, _PASSWORD, recovery=False)
        expected = 0
        try:
            async with asyncio.timeout(self.rng.choice((20.0, 60.0, 120.0))):
                async with aclosing(reader.tail(0)) as entries:
                    async for entry in entries:
                        if entry.entry_id != expected:
                            self.observer.fail("in order", f"{entry.entry_id} after {expected}")
                        expected += 1
                        self._found(entry)
        except NoSuchEntryError:
            self.observer.absent(self.process.name, ledger, expected)
            raise
        except TimeoutError:
            return

    # ---- the end --------------------------------------------------------------------------------

    async def judge(self) -> None:
        """Closes and reads every ledger; retries what fails."""
        client = self.sim.client
        for ledger in sorted(self.cluster.truth.ledgers):
            while True:
                try:
                    reader = await client.open_ledger(LedgerId(ledger), _PASSWORD)
                    last = reader.metadata.last_entry
                    self.observer.ended(self.process.name, ledger, last)
                    if last >= 0:
                        await self.read_range(reader, 0, last)
                    break
                except BkboxError as error:
                    self.process.note("judging %d: %s: %s", ledger, type(error).__name__, error)
                    await asyncio.sleep(2.0)


PROGRAMS: dict[str, Callable[[Program], Awaitable[None]]] = {
    "write": Program.write,
    "write with deferred sync": Program.write_deferred,
    "duel": Program.duel,
    "recover": Program.recover,
    "recover together": Program.recover_together,
    "read": Program.read,
    "tail": Program.tail,
    "delete": Program.delete,
    "copy by hand": Program.copy_by_hand,
    "judge": Program.judge,
}
