"""The load of clients: they write, close, abandon and recover ledgers, tail, read and delete.

Each program runs until it is stopped; all its results, entries as well as errors, are in the history. Readers read only
confirmed entries. An add that was handed over and failed is *unknown*: it may be in the ledger.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from typing import Any

from bkbox.base.values import frozen_struct
from bkbox.client import Client, LedgerReader, LedgerWriter, connect
from bkbox.client.ledger.reader import Entry
from bkbox.errors import BkboxError, NoSuchEntryError
from proof.chaos.entries import digest, payload
from proof.chaos.fault_budget import ACK_QUORUM
from proof.chaos.history import History, Outcome

_SIZES = ((3, 3, 2), (3, 2, 2), (2, 2, 2), (3, 3, 3), (4, 3, 2), (4, 4, 3), (5, 3, 2))
"""(E, WQ, AQ)."""

_WRITERS = 4
_BURST_PAUSE_S = 0.16
_BURSTS = (1, 1, 2, 4, 8, 16)
_ENTRIES = (10, 40, 120, 400)
_LAST_ADDS_S = 30.0
_PAUSE_S = 0.5
_ERROR_LETTERS = 240
_FOUND_TOGETHER = 64


@frozen_struct
class FailedOperation:
    """Outcome of a failed operation."""

    outcome: Outcome
    error: str


def failure_of(error: BkboxError, *, handed_over: bool = False) -> FailedOperation:
    """``handed_over``: True for an add, which may be in the ledger whatever the error."""
    unknown = handed_over or error.may_have_taken_effect
    text = f"{type(error).__name__}: {error}"[:_ERROR_LETTERS]
    return FailedOperation("unknown" if unknown else "refused", text)


class Ledgers:
    """The ledgers that the programs share."""

    def __init__(self) -> None:
        self.written: list[int] = []
        """Ledgers with an active writer."""
        self.left: list[int] = []
        """Ledgers that their writers left open."""
        self.all: list[int] = []


class Load:
    """All clients of a run."""

    def __init__(self, metadata: str, history: History, seed: int, bookies: int) -> None:
        self._metadata = metadata
        self._history = history
        self._seed = seed
        self._rng = random.Random(f"load {seed}")  # noqa: S311
        self._sizes = [sizes for sizes in _SIZES if sizes[0] <= bookies and sizes[2] >= ACK_QUORUM]
        self._ledgers = Ledgers()
        self._handles = 0
        self.stop = asyncio.Event()

    async def run(self) -> None:
        """Runs until ``stop``, and until all operations have ended; or until cancelled."""
        async with AsyncExitStack() as stack:
            clients = []
            for number in range(4):
                rng = random.Random(self._rng.random())  # noqa: S311
                options: dict[str, Any] = {
                    "protocol": "v3" if number % 2 else "v2",
                    "backoff_max_s": 1.0,
                    "explicit_lac_interval_s": 0.5 if number < 2 else 0.0,
                }
                clients.append(
                    await stack.enter_async_context(connect(self._metadata, rng=rng, **options))
                )
            async with asyncio.TaskGroup() as group:
                for number in range(_WRITERS):
                    group.create_task(self._write_on(f"writer {number}", clients[number % 2]))
                group.create_task(self._recover_on(clients[2], clients[3]))
                group.create_task(self._recover_on(clients[3], clients[2]))
                group.create_task(self._tail_on(clients[2]))
                group.create_task(self._tail_on(clients[3]))
                group.create_task(self._read_on(clients[3]))
                group.create_task(self._delete_on(clients[2]))

    async def _pause(self, mean_s: float) -> None:
        try:
            async with asyncio.timeout(mean_s * self._rng.uniform(0.2, 1.8)):
                await self.stop.wait()
        except TimeoutError:
            return

    def _handle(self, what: str) -> str:
        self._handles += 1
        return f"{what} {self._handles}"

    # ---- writing --------------------------------------------------------------------------------

    async def _write_on(self, name: str, client: Client) -> None:
        while not self.stop.is_set():
            sizes = self._rng.choice(self._sizes)
            operation = self._history.begin("create", by=name, sizes=sizes)
            try:
                writer = await client.create_ledger(*sizes)
            except BkboxError as error:
                failed = failure_of(error)
                self._history.end(operation, failed.outcome, by=name, error=failed.error)
                await self._pause(_PAUSE_S)
                continue
            ledger = int(writer.ledger_id)
            self._history.end(operation, "ok", by=name, ledger=ledger)
            self._ledgers.all.append(ledger)
            self._ledgers.written.append(ledger)
            try:
                await self._write(name, writer)
            finally:
                self._ledgers.written.remove(ledger)
                await writer.abort()

    async def _write(self, name: str, writer: LedgerWriter) -> None:
        rng, entry = self._rng, 0
        adds: list[asyncio.Future[Any]] = []
        for _ in range(rng.choice(_ENTRIES) // 4):
            for _ in range(rng.choice(_BURSTS)):
                await writer.drain()
                add = self._add(name, writer, entry)
                if add is None:
                    break
                adds.append(add)
                entry += 1
            await self._pause(_BURST_PAUSE_S)
            if self.stop.is_set() or any(add.done() and add.exception() for add in adds[-16:]):
                break
        if adds:
            await asyncio.wait(adds, timeout=_LAST_ADDS_S)
        if rng.random() < 0.65:
            await self._close(name, writer)
        else:
            self._ledgers.left.append(int(writer.ledger_id))

    def _add(self, name: str, writer: LedgerWriter, entry: int) -> asyncio.Future[Any] | None:
        ledger = int(writer.ledger_id)
        data = payload(self._seed, ledger, entry)
        what = {"by": name, "ledger": ledger, "entry": entry}
        operation = self._history.begin("add", **what, digest=digest(data))
        try:
            future = writer.append_nowait(data)
        except BkboxError as error:
            self._history.end(operation, "refused", **what, error=failure_of(error).error)
            return None

        def ended(done: asyncio.Future[Any]) -> None:
            error = None if done.cancelled() else done.exception()
            if not done.cancelled() and error is None:
                self._history.end(operation, "ok", ledger=ledger, entry=int(done.result()))
            elif isinstance(error, BkboxError):
                failed = failure_of(error, handed_over=True)
                self._history.end(operation, failed.outcome, **what, error=failed.error)

        future.add_done_callback(ended)
        return future

    async def _close(self, name: str, writer: LedgerWriter) -> None:
        ledger = int(writer.ledger_id)
        operation = self._history.begin("close", by=name, ledger=ledger)
        try:
            metadata = await writer.close()
        except BkboxError as error:
            failed = failure_of(error)
            self._history.end(operation, failed.outcome, by=name, ledger=ledger, error=failed.error)
            self._ledgers.left.append(ledger)
        else:
            self._history.end(operation, "ok", by=name, ledger=ledger, last=metadata.last_entry)

    # ---- recovering -----------------------------------------------------------------------------

    async def _recover_on(self, client: Client, other: Client) -> None:
        """Recovers with one client or two at once: abandoned ledgers, or now and then one with an active writer."""
        rng = self._rng
        while not self.stop.is_set():
            await self._pause(4 * _PAUSE_S)
            if self._ledgers.left:
                ledger = self._ledgers.left.pop(rng.randrange(len(self._ledgers.left)))
            elif self._ledgers.written and rng.random() < 0.15:
                ledger = rng.choice(self._ledgers.written)
            else:
                continue
            clients = [client, other] if rng.random() < 0.4 else [client]
            done = await asyncio.gather(*(self._recover(each, ledger) for each in clients))
            if not any(done):
                self._ledgers.left.append(ledger)

    async def _recover(self, client: Client, ledger: int) -> bool:
        """True if the ledger is closed, or no longer exists."""
        await asyncio.sleep(self._rng.choice((0.0, 0.0, 0.01, 0.1)))
        name = self._handle("recoverer")
        operation = self._history.begin("recover", by=name, ledger=ledger)
        try:
            metadata = await client.recover(ledger)
        except BkboxError as error:
            failed = failure_of(error)
            self._history.end(operation, failed.outcome, by=name, ledger=ledger, error=failed.error)
            return "NoSuchLedger" in failed.error
        self._history.end(operation, "ok", by=name, ledger=ledger, last=metadata.last_entry)
        return True

    # ---- reading --------------------------------------------------------------------------------

    async def _tail_on(self, client: Client) -> None:
        rng = self._rng
        while not self.stop.is_set():
            await self._pause(_PAUSE_S)
            if self._ledgers.written:
                ledger = rng.choice(self._ledgers.written)
                await self._tail(client, ledger, rng.choice((2.0, 10.0, 30.0)))

    async def _tail(self, client: Client, ledger: int, seconds: float) -> None:
        name = self._handle("tailer")
        operation = self._history.begin("tail", by=name, ledger=ledger)
        reading = Reading(self._history, operation, name, ledger, 0)
        ending = asyncio.ensure_future(self._pause(seconds))
        try:
            reader = await client.open_ledger(ledger, recovery=False)
            async with aclosing(reader.tail(0)) as entries:
                following = asyncio.ensure_future(reading.consume(entries, at_once=True))
                try:
                    await asyncio.wait([following, ending], return_when=asyncio.FIRST_COMPLETED)
                    if following.done():
                        await following
                finally:
                    following.cancel()
                    await asyncio.gather(following, return_exceptions=True)
        except BkboxError as error:
            reading.fail(error)
        else:
            self._history.end(operation, "ok", by=name, ledger=ledger)
        finally:
            ending.cancel()

    async def _read_on(self, client: Client) -> None:
        rng = self._rng
        while not self.stop.is_set():
            await self._pause(_PAUSE_S)
            if not self._ledgers.all:
                continue
            ledger = rng.choice(
                self._ledgers.all[-12:] if rng.random() < 0.7 else self._ledgers.all
            )
            name = self._handle("reader")
            reader = None
            for _ in range(rng.randint(1, 3)):
                operation = self._history.begin("lac", by=name, ledger=ledger)
                try:
                    if reader is None:
                        reader = await client.open_ledger(ledger, recovery=False)
                    lac = await reader.read_last_add_confirmed()
                except BkboxError as error:
                    failed = failure_of(error)
                    what = {"by": name, "ledger": ledger, "error": failed.error}
                    self._history.end(operation, failed.outcome, **what)
                    break
                self._history.end(operation, "ok", by=name, ledger=ledger, lac=lac)
                if lac >= 0:
                    first = max(0, lac - rng.choice((0, 3, 30, 300)))
                    await read(self._history, name, reader, first, min(lac, first + 30))
                await self._pause(_PAUSE_S)

    # ---- deleting -------------------------------------------------------------------------------

    async def _delete_on(self, client: Client) -> None:
        """Deletes ledgers of some age that have no writer."""
        while not self.stop.is_set():
            await self._pause(20 * _PAUSE_S)
            old = [each for each in self._ledgers.all[:-20] if each not in self._ledgers.written]
            if not old:
                continue
            ledger = self._rng.choice(old)
            operation = self._history.begin("delete", by="deleter", ledger=ledger)
            try:
                await client.delete_ledger(ledger)
            except BkboxError as error:
                failed = failure_of(error)
                self._history.end(operation, failed.outcome, ledger=ledger, error=failed.error)
            else:
                self._history.end(operation, "ok", ledger=ledger)
                self._ledgers.all.remove(ledger)


class Reading:
    """One read in flight: its entries go to the history."""

    def __init__(
        self, history: History, operation: int, name: str, ledger: int, first: int
    ) -> None:
        self.next = first
        self._history = history
        self._operation = operation
        self._what: dict[str, Any] = {"by": name, "ledger": ledger}

    async def consume(self, entries: AsyncGenerator[Entry, None], *, at_once: bool) -> None:
        """Records all entries; ``at_once``: as they come, rather than many together."""
        digests: list[str] = []
        try:
            async for entry in entries:
                digests.append(digest(entry.payload))
                if entry.entry_id != self.next + len(digests) - 1:
                    self._note(digests[:-1])
                    self.next, digests = int(entry.entry_id), digests[-1:]
                if at_once or len(digests) == _FOUND_TOGETHER:
                    self._note(digests)
                    digests = []
        finally:
            self._note(digests)

    def _note(self, digests: list[str]) -> None:
        if digests:
            what: dict[str, Any] = {"first": self.next, "digests": digests}
            self._history.note("found", id=self._operation, **self._what, **what)
            self.next += len(digests)

    def fail(self, error: BkboxError) -> None:
        """Records the failure. ``absent``: the entry that a bookie denied."""
        failed = failure_of(error)
        what: dict[str, object] = dict(self._what, error=failed.error)
        if isinstance(error, NoSuchEntryError):
            what["absent"] = self.next
        self._history.end(self._operation, failed.outcome, **what)


async def read(history: History, name: str, reader: LedgerReader, first: int, last: int) -> bool:
    """Reads entries; True if all were read."""
    ledger = int(reader.ledger_id)
    operation = history.begin("read", by=name, ledger=ledger, first=first, last=last)
    reading = Reading(history, operation, name, ledger, first)
    try:
        async with aclosing(reader.read(first, last)) as entries:
            await reading.consume(entries, at_once=False)
    except BkboxError as error:
        reading.fail(error)
        return False
    history.end(operation, "ok", by=name, ledger=ledger)
    return True
