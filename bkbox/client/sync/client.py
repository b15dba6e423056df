"""The client for programs without an event loop: the same names, and calls that block.

::

    from bkbox.client.sync import connect

    with connect("sqlite:cluster.db") as client:
        with client.create_ledger() as writer:
            writer.append(b"hello")
        for entry in client.open_ledger(writer.ledger_id).read():
            print(entry.payload)

One event loop in a thread of its own serves a client; any number of threads may call. The meaning and the errors
of a call are documented at the method of the same name of the asyncio client. Each call takes ``timeout_s`` and raises
TimeoutError after so many seconds (None: no time-out). The handle stays usable; an append that timed out may be in the
ledger all the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import TypeVar, Unpack

from bkbox.base.ids import BookieId, EntryId, LedgerId
from bkbox.client import client as asynchronous
from bkbox.client.connection.bookie_health import Health
from bkbox.client.ledger.payload import payload_of
from bkbox.client.ledger.reader import Entry
from bkbox.client.ledger.reader import LedgerReader as AsyncReader
from bkbox.client.ledger.writer import LedgerWriter as AsyncWriter
from bkbox.client.log.log import Log as AsyncLog
from bkbox.client.options import ConnectOptions
from bkbox.client.sync.log import BlockingWriter, Log, LogWriter, begun
from bkbox.client.sync.loop_thread import LoopThread
from bkbox.wire.metadata.ledger import DigestType, LedgerMetadata

T = TypeVar("T")

__all__ = ["connect", "Client", "LedgerWriter", "LedgerReader", "Log", "LogWriter"]


@contextlib.contextmanager
def connect(
    uri: str, *, timeout_s: float | None = None, **options: Unpack[ConnectOptions]
) -> Iterator[Client]:
    """A client of the cluster whose metadata is at this URI; ``options`` are the fields of ClientOptions."""
    thread = LoopThread()
    try:
        stack = contextlib.AsyncExitStack()
        opened = thread.call(
            lambda: stack.enter_async_context(asynchronous.connect(uri, **options)), timeout_s
        )
        try:
            yield Client(thread, opened)
        finally:
            if thread.is_current_thread:
                thread.call(stack.aclose, None)
    finally:
        thread.close()


class Client:
    """See bkbox.client.Client; made by ``connect``."""

    def __init__(self, thread: LoopThread, client: asynchronous.Client) -> None:
        self._thread = thread
        self._client = client

    def create_ledger(
        self,
        ensemble_size: int = 3,
        write_quorum: int | None = None,
        ack_quorum: int | None = None,
        digest_type: DigestType = DigestType.CRC32C,
        password: bytes = b"",
        custom: Mapping[str, bytes] | None = None,
        *,
        deferred_sync: bool = False,
        explicit_lac_interval_s: float | None = None,
        ledger: int | None = None,
        timeout_s: float | None = None,
    ) -> LedgerWriter:
        created = self._thread.call(
            lambda: self._client.create_ledger(
                ensemble_size,
                write_quorum,
                ack_quorum,
                digest_type,
                password,
                custom,
                deferred_sync=deferred_sync,
                explicit_lac_interval_s=explicit_lac_interval_s,
                ledger=ledger,
            ),
            timeout_s,
        )
        return LedgerWriter(self._thread, created)

    def open_ledger(
        self,
        ledger: int,
        password: bytes | None = b"",
        *,
        recovery: bool = True,
        digest_type: DigestType | None = None,
        timeout_s: float | None = None,
    ) -> LedgerReader:
        opened = self._thread.call(
            lambda: self._client.open_ledger(
                ledger, password, recovery=recovery, digest_type=digest_type
            ),
            timeout_s,
        )
        return LedgerReader(self._thread, opened)

    def recover(
        self, ledger: int, password: bytes | None = None, *, timeout_s: float | None = None
    ) -> LedgerMetadata:
        return self._thread.call(lambda: self._client.recover(ledger, password), timeout_s)

    def delete_ledger(self, ledger: int, *, timeout_s: float | None = None) -> None:
        self._thread.call(lambda: self._client.delete_ledger(ledger), timeout_s)

    def ledgers(self) -> Iterator[LedgerId]:
        return self._thread.iterate(self._client.ledgers())

    def metadata(self, ledger: int, *, timeout_s: float | None = None) -> LedgerMetadata:
        return self._thread.call(lambda: self._client.metadata(ledger), timeout_s)

    def watch(self, ledger: int) -> Iterator[LedgerMetadata | None]:
        return self._thread.iterate(self._client.watch(ledger))

    def health(self) -> dict[BookieId, Health]:
        async def ask() -> dict[BookieId, Health]:
            return self._client.health()

        return self._thread.call(ask, None)

    def log(self, name: str, *, password: bytes | None = None) -> Log:
        """See bkbox.client.log.Log."""
        return Log(self._thread, AsyncLog(self._client, name, password=password))


class LedgerWriter(BlockingWriter[AsyncWriter, EntryId]):
    """See bkbox.client.LedgerWriter."""

    @property
    def ledger_id(self) -> LedgerId:
        return self._writer.ledger_id

    @property
    def metadata(self) -> LedgerMetadata:
        return self._writer.metadata

    @property
    def last_add_confirmed(self) -> EntryId:
        return self._writer.last_add_confirmed

    @property
    def length(self) -> int:
        return self._writer.length

    @property
    def deferred_sync(self) -> bool:
        return self._writer.deferred_sync

    def append(
        self, payload: bytes, *, entry_id: int | None = None, timeout_s: float | None = None
    ) -> EntryId:
        return self._call(lambda: self._writer.append(payload, entry_id=entry_id), timeout_s)

    def append_many(
        self, payloads: Iterable[bytes], *, timeout_s: float | None = None
    ) -> list[EntryId]:
        return self._call(lambda: self._writer.append_many(payloads), timeout_s)

    def append_nowait(self, payload: bytes, *, entry_id: int | None = None) -> Future[EntryId]:
        """Append an entry; blocks only while the window is full. The future gives the id, and cannot be cancelled."""
        payload, writer = payload_of(payload), self._writer
        if entry_id is None:
            return self._hand_over(writer.append_nowait, payload)
        return self._call(
            lambda: begun(
                lambda: writer.append_nowait(payload, entry_id=entry_id),
                lambda: writer.drain(entry_id=entry_id),
            ),
            None,
        )

    def force(self, *, timeout_s: float | None = None) -> EntryId:
        return self._call(self._writer.force, timeout_s)

    def close(self, *, durable: bool = False, timeout_s: float | None = None) -> LedgerMetadata:
        self._is_ended = True
        return self._call(lambda: self._writer.close(durable=durable), timeout_s)


class LedgerReader:
    """See bkbox.client.LedgerReader."""

    def __init__(self, thread: LoopThread, reader: AsyncReader) -> None:
        self._thread = thread
        self._reader = reader

    @property
    def ledger_id(self) -> LedgerId:
        return self._reader.ledger_id

    @property
    def metadata(self) -> LedgerMetadata:
        return self._reader.metadata

    @property
    def is_closed(self) -> bool:
        return self._reader.is_closed

    @property
    def last_add_confirmed(self) -> EntryId:
        return self._reader.last_add_confirmed

    def read_last_add_confirmed(
        self, *, persisted: bool = False, timeout_s: float | None = None
    ) -> EntryId:
        return self._thread.call(
            lambda: self._reader.read_last_add_confirmed(persisted=persisted), timeout_s
        )

    def read_explicit_last_add_confirmed(self, *, timeout_s: float | None = None) -> EntryId:
        return self._thread.call(self._reader.read_explicit_last_add_confirmed, timeout_s)

    def read_last_add_confirmed_and_entry(
        self, entry: int, timeout_s: float
    ) -> tuple[EntryId, Entry | None]:
        """As in bkbox.client.LedgerReader. ``timeout_s`` bounds the wait for the entry; its end raises no
        TimeoutError.
        """
        return self._thread.call(
            lambda: self._reader.read_last_add_confirmed_and_entry(entry, timeout_s), None
        )

    def read_entry(self, entry: int, *, timeout_s: float | None = None) -> Entry:
        return self._thread.call(lambda: self._reader.read_entry(entry), timeout_s)

    def read_last(self, *, timeout_s: float | None = None) -> Entry | None:
        return self._thread.call(self._reader.read_last, timeout_s)

    def read_batch(
        self,
        first: int,
        max_count: int,
        max_bytes: int | None = None,
        *,
        timeout_s: float | None = None,
    ) -> list[Entry]:
        return self._thread.call(
            lambda: self._reader.read_batch(first, max_count, max_bytes), timeout_s
        )

    def read(self, first: int = 0, last: int | None = None) -> Iterator[Entry]:
        batches = self._thread.iterate(self._reader.read_batches(first, last))
        return _each(batches)

    def __iter__(self) -> Iterator[Entry]:
        return self.read()

    def read_unconfirmed(self, first: int, last: int) -> Iterator[Entry]:
        return self._thread.iterate(self._reader.read_unconfirmed(first, last))

    def tail(self, first: int = 0) -> Iterator[Entry]:
        return self._thread.iterate(self._reader.tail(first))


def _each(batches: Iterator[list[Entry]]) -> Iterator[Entry]:
    for entries in batches:
        yield from entries
