"""A client of one cluster: creates, opens, recovers, lists and deletes ledgers.

A ledger has one writer, the client that created it. A client that opens the ledger with recovery fences that writer,
finds the last entry and closes the ledger. Opening without recovery affects no other client.
"""

from __future__ import annotations

import asyncio
import logging
import random
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Self, Unpack

from bkbox import metadata as metadata_store
from bkbox.base.ids import BookieId, EntryId, LedgerId
from bkbox.base.text import error_text, quoted
from bkbox.client import arguments
from bkbox.client.connecting import Connecting
from bkbox.client.connection.addresses import Addresses
from bkbox.client.connection.bookie_health import Health
from bkbox.client.connection.pool import BookiePool
from bkbox.client.inner import Inner
from bkbox.client.ledger.driver import LedgerAccess, run
from bkbox.client.ledger.force_close import ForceClose
from bkbox.client.ledger.ledger_inspection import LedgerInspection, LedgerInspector
from bkbox.client.ledger.read_order import ReadOrder
from bkbox.client.ledger.reader import LedgerReader
from bkbox.client.ledger.writer import LedgerWriter
from bkbox.client.loop_affinity import LoopAffinity
from bkbox.client.options import ClientOptions, ConnectOptions
from bkbox.client.placement.placement import Placer
from bkbox.client.placement.topology import topology_of
from bkbox.errors import (
    BkboxError,
    BugError,
    ConfigError,
    LedgerExistsError,
    MetadataError,
    UnauthorizedError,
    WrongDigestTypeError,
)
from bkbox.metadata.base import MetadataStore
from bkbox.metadata.versioned import Versioned
from bkbox.protocol import writer
from bkbox.protocol.effects import Recovered
from bkbox.protocol.quorum import QuorumSizes
from bkbox.protocol.recovery import LedgerRecovery
from bkbox.wire.digest import DigestManager, master_key
from bkbox.wire.metadata.ledger import ACK_AFTER, DigestType, Fragment, LedgerMetadata, LedgerState

log = logging.getLogger(__name__)

CLEANUP_S = 10.0
"""Time, in seconds, that the rest of a cancelled call may take."""


def connect(
    uri: str, *, rng: random.Random | None = None, **options: Unpack[ConnectOptions]
) -> AbstractAsyncContextManager[Client]:
    """A client of the cluster whose metadata is at this URI (``sqlite:PATH``, ``zk://HOST:PORT/ledgers``), as a context
    manager.

    ``options``: the fields of ClientOptions. Raises, when it is entered, ConfigError, MetadataUnavailableError,
    MetadataError.
    """
    return Connecting(_connected(uri, rng, options))


@asynccontextmanager
async def _connected(
    uri: str, rng: random.Random | None, options: Mapping[str, object]
) -> AsyncIterator[Client]:
    wrong = arguments.problems(
        lambda: arguments.instance(
            "metadata URI", uri, str, "text, such as sqlite:PATH or zk://HOST:PORT/ledgers"
        ),
        lambda: rng is None or arguments.instance("rng", rng, random.Random),
    )
    try:
        checked = arguments.made_of(ClientOptions, options)
    except ConfigError as error:
        raise type(error)([*wrong, *error.problems]) from None
    if wrong:
        raise ConfigError(wrong)
    async with (
        await metadata_store.connect(uri) as store,
        Client(store, checked, rng or random.Random()) as client,  # noqa: S311
    ):
        yield client


class Client:
    """See ``connect``, which makes one with its own metadata store. The store is not closed with the client."""

    def __init__(self, store: MetadataStore, options: ClientOptions, rng: random.Random) -> None:
        self._binding = LoopAffinity()
        self._binding.closed = True  # until the client is connected
        self._store = store
        self._options = options
        self._rng = rng
        self._pool = BookiePool(Addresses(store).find, options, rng)
        self._placer = Placer(store, self._pool, topology_of(options, store), rng)
        self._writers: set[LedgerWriter] = set()
        self._cleanups: set[asyncio.Task[None]] = set()
        self._binding.closed = False

    async def close(self) -> None:
        """Abandon writers that are still open (ResourceWarning), end the clean-up of cancelled calls and close all
        connections. If the event loop was closed, another one may call this. Raises ForkedError, WrongLoopError.
        """
        if not self._binding.outlived_its_loop:
            self._binding.check_loop()
        self._binding.closed = True
        left = [handle for handle in self._writers if not handle.was_abandoned]
        for handle in tuple(self._writers):
            await handle.abort()
        if self._cleanups and not self._binding.outlived_its_loop:
            await asyncio.wait(tuple(self._cleanups))
        await self._pool.close()
        for handle in left:
            text = f"the writer of ledger {handle.ledger_id} was not closed"
            warnings.warn(text, ResourceWarning, source=handle, stacklevel=2)

    def __del__(self) -> None:
        if not self._binding.closed:
            warnings.warn("a client was not closed", ResourceWarning, source=self, stacklevel=2)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    # ---- ledgers --------------------------------------------------------------------------------

    async def create_ledger(
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
    ) -> LedgerWriter:
        """Create a ledger and return its writer.

        Each entry is written to ``write_quorum`` bookies (default: the whole ensemble) and acknowledged when
        ``ack_quorum`` of them hold it (default: more than half). With ``deferred_sync`` bookies acknowledge an entry
        before it is on disk, and only ``LedgerWriter.force`` confirms it; a bookie that fails ends the writer.
        ``explicit_lac_interval_s`` overrides the client's option. ``ledger``: an id chosen by the caller, which must
        never have been a ledger's on these bookies; LedgerExistsError if it is one now. With ``custom`` ACK_AFTER
        (wire/metadata/ledger.py) = ``sync`` every bookie syncs each entry before it acknowledges it. Raises
        QuorumSizeError, NotEnoughBookiesError, MetadataError, ConfigError; UserWarning for sizes that are legal and
        unwise.
        """
        self._binding.check()
        custom = {} if custom is None else custom
        _check_creation(
            digest_type,
            password,
            custom,
            lambda: arguments.integer("ensemble_size", ensemble_size, 1, arguments.INT32_MAX),
            lambda: arguments.integer(
                "write_quorum", ensemble_size if write_quorum is None else write_quorum
            ),
            lambda: arguments.integer("ack_quorum", 1 if ack_quorum is None else ack_quorum),
            lambda: arguments.flag("deferred_sync", deferred_sync),
            lambda: (
                explicit_lac_interval_s is None
                or arguments.seconds("explicit_lac_interval_s", explicit_lac_interval_s)
            ),
        )
        own_id = None if ledger is None else arguments.ledger(ledger)
        _check_ack_after(custom, deferred_sync=deferred_sync)
        write_quorum = ensemble_size if write_quorum is None else write_quorum
        ack_quorum = write_quorum // 2 + 1 if ack_quorum is None else ack_quorum
        sizes = QuorumSizes(ensemble_size, write_quorum, ack_quorum)
        for text in sizes.warnings():
            warnings.warn(text, UserWarning, stacklevel=2)
        ensemble = await self._placer.ensemble(sizes)
        while True:
            metadata = LedgerMetadata(
                ledger_id=await self._store.new_ledger_id() if own_id is None else own_id,
                ensemble_size=ensemble_size,
                write_quorum=write_quorum,
                ack_quorum=ack_quorum,
                state=LedgerState.OPEN,
                fragments=(Fragment(EntryId(0), ensemble),),
                digest_type=digest_type,
                password=password,
                custom=tuple(sorted(custom.items())),
                creator_token=self._rng.getrandbits(62) + 1,
            )
            try:
                created = await self._created(metadata)
                break
            except LedgerExistsError:
                if own_id is not None:
                    raise
                continue  # another client chose this id itself: draw another
        machine = writer.LedgerWriter(created.value, created.version, deferred_sync=deferred_sync)
        access = self._access(created.value, password)
        if explicit_lac_interval_s is None:
            explicit_lac_interval_s = self._options.explicit_lac_interval_s
        handle = LedgerWriter(access, machine, self._writers.discard, explicit_lac_interval_s)
        self._writers.add(handle)
        return handle

    async def open_ledger(
        self,
        ledger: int,
        password: bytes | None = b"",
        *,
        recovery: bool = True,
        digest_type: DigestType | None = None,
    ) -> LedgerReader:
        """Open a ledger for reading.

        With ``recovery`` an open ledger is closed first: its writer can write no more. Without ``recovery`` the
        ledger is read as far as it is confirmed. ``password`` None: take the one in the metadata (for
        administration). ``digest_type``: the expected type; None: the one in the metadata. Raises UnauthorizedError,
        WrongDigestTypeError, RecoveryAbortedError (nothing was closed, try again), NoSuchLedgerError, MetadataError.
        """
        arguments.flag("recovery", recovery)
        if digest_type is not None:
            kinds = ", ".join(f"DigestType.{kind.name}" for kind in DigestType)
            arguments.instance("digest_type", digest_type, DigestType, f"one of {kinds}")
        found = await self._find(ledger, password)
        stored = found.value.digest_type
        if None not in (digest_type, stored) and digest_type is not stored:
            assert digest_type is not None
            assert stored is not None
            raise WrongDigestTypeError(
                f"the entries of ledger {ledger} have digests of type {stored.name}, not {digest_type.name}"
            )
        if recovery:
            found = await self._recovered(found, password)
        access = self._access(found.value, password)
        order = await self._read_order(found.value)
        return LedgerReader(access, found.value, found.version, order)

    async def recover(self, ledger: int, password: bytes | None = None) -> LedgerMetadata:
        """Close an open ledger, at its last acknowledged entry or after it; returns the metadata. Raises as
        ``open_ledger``.
        """
        return (await self._recovered(await self._find(ledger, password), password)).value

    async def inspect_ledger(self, ledger: int, password: bytes | None = None) -> LedgerInspection:
        """Report what every bookie of a ledger has of it, and the outcome that a recovery would have. Read-only: the
        ledger and its writer are not affected. Raises NoSuchLedgerError, UnauthorizedError, MetadataError.
        """
        found = await self._find(ledger, password, linearizable=True)
        access = self._access(found.value, password)
        return await LedgerInspector(access, found.value, found.version).inspect()

    async def force_close(
        self, ledger: int, password: bytes | None = None, *, plug: bool
    ) -> ForceClose:
        """A ForceClose, which ends a ledger that recovery cannot close, with loss accepted. Raises as
        ``inspect_ledger``.
        """
        arguments.flag("plug", plug)
        found = await self._find(ledger, password, linearizable=True)
        return ForceClose(
            self._access(found.value, password),
            lambda: self._find(ledger, password, linearizable=True),
            lambda: self.recover(ledger, password),
            plug=plug,
        )

    async def delete_ledger(self, ledger: int) -> None:
        """Delete the metadata of a ledger: no client can open it from then on, and bookies remove its entries later
        (docs/space.md). Deleting a ledger that does not exist succeeds. Raises MetadataError.
        """
        self._binding.check()
        await self._store.delete_ledger(arguments.ledger(ledger))

    async def ledgers(self) -> AsyncGenerator[LedgerId, None]:
        """The ids of all ledgers, ascending. Raises MetadataError."""
        self._binding.check()
        async with Inner(self._store.ledger_ranges()) as pages:
            async for page in pages:
                for ledger in page:
                    yield ledger

    async def metadata(self, ledger: int) -> LedgerMetadata:
        """The metadata of a ledger. Raises NoSuchLedgerError, MetadataError."""
        self._binding.check()
        return (await self._store.read_ledger(arguments.ledger(ledger))).value

    def watch(self, ledger: int) -> AsyncGenerator[LedgerMetadata | None, None]:
        """The metadata of a ledger now and after each change, the newest where several come at once; None while there
        is no such ledger. Ends when the metadata store is closed. Raises MetadataError.
        """
        return self._watch(arguments.ledger(ledger))

    async def _watch(self, ledger: LedgerId) -> AsyncGenerator[LedgerMetadata | None, None]:
        self._binding.check()
        async with Inner(self._store.watch_ledger(ledger)) as changes:
            async for found in changes:
                yield None if found is None else found.value

    def health(self) -> dict[BookieId, Health]:
        """The bookies that recently failed or were slow for this client (bookie_health.py)."""
        return self._pool.health.of_all()

    # ---- shared ---------------------------------------------------------------------------------

    @property
    def pool(self) -> BookiePool:
        """The connections to the bookies, for tools that ask a single bookie and not a quorum."""
        return self._pool

    @property
    def store(self) -> MetadataStore:
        """The metadata store. The client does not close it."""
        return self._store

    @property
    def rng(self) -> random.Random:
        """This client's random number generator, for what is built on the client."""
        return self._rng

    @property
    def placer(self) -> Placer:
        """The placement policy, for tools that explain its choice."""
        return self._placer

    async def _find(
        self, ledger: int, password: bytes | None, *, linearizable: bool = False
    ) -> Versioned[LedgerMetadata]:
        self._binding.check()
        number = arguments.ledger(ledger)
        arguments.password(password)
        found = await self._store.read_ledger(number, linearizable=linearizable)
        stored = found.value.password
        if None not in (password, stored) and password != stored:
            raise UnauthorizedError(f"the password is not that of ledger {ledger}")
        return found

    async def _created(self, metadata: LedgerMetadata) -> Versioned[LedgerMetadata]:
        """The stored metadata of a new ledger. If the caller is cancelled meanwhile, the ledger is deleted again,
        because no caller would know its id.
        """
        creating = asyncio.ensure_future(self._store.create_ledger(metadata))
        try:
            return await asyncio.shield(creating)
        except asyncio.CancelledError:
            self.run_in_background(self._delete_created(creating))
            raise

    async def _delete_created(self, creating: asyncio.Future[Versioned[LedgerMetadata]]) -> None:
        await self._store.delete_ledger((await creating).value.ledger_id)

    def run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the rest of a cancelled call in the background, for CLEANUP_S at most. ``close`` waits for it. A
        failure is logged.
        """
        task = asyncio.get_running_loop().create_task(_bounded(work))
        self._cleanups.add(task)
        task.add_done_callback(self._cleanups.discard)

    async def _recovered(
        self, found: Versioned[LedgerMetadata], password: bytes | None
    ) -> Versioned[LedgerMetadata]:
        machine = LedgerRecovery(found.value, found.version)
        outcome = await run(machine, self._access(found.value, password))
        if not isinstance(outcome, Recovered):
            raise BugError(f"recovery of ledger {found.value.ledger_id} ended with {outcome}")
        return Versioned(outcome.metadata, outcome.version)

    async def _read_order(self, metadata: LedgerMetadata) -> ReadOrder:
        options = self._options
        distances: Mapping[BookieId, int] = {}
        if options.closest_to is not None:
            me = BookieId(f"{options.closest_to}:0")
            distances = await self._placer.distances(me, metadata.bookies())
        return ReadOrder(self._pool.health, self._rng, distances, sticky=options.sticky_reads)

    def _access(self, metadata: LedgerMetadata, password: bytes | None) -> LedgerAccess:
        """``password`` is for metadata of an old format, which has no password."""
        password = metadata.password if metadata.password is not None else password or b""
        if metadata.digest_type is None:
            raise MetadataError(
                f"the metadata of ledger {metadata.ledger_id} does not say its digest type"
            )
        return LedgerAccess(
            self._binding,
            metadata.ledger_id,
            DigestManager(metadata.ledger_id, metadata.digest_type, password),
            master_key(password),
            self._store,
            self._pool,
            self._options,
            self._rng,
            self._placer,
            metadata.write_quorum,
            metadata.synced,
        )


async def _bounded(work: Coroutine[Any, Any, None]) -> None:
    try:
        async with asyncio.timeout(CLEANUP_S):
            await work
    except (BkboxError, TimeoutError) as error:
        log.info("what a cancelled call has left behind stays: %s", error_text(error))


def _check_creation(
    digest_type: object,
    password: object,
    custom: Mapping[str, object],
    *others: Callable[[], object],
) -> None:
    """Check the values that are stored for good; callers need not be checked by mypy."""
    problems = arguments.problems(*others)
    if not isinstance(digest_type, DigestType):
        kinds = ", ".join(f"DigestType.{kind.name}" for kind in DigestType)
        problems.append(f"digest type {arguments.shown(digest_type)} is not one of {kinds}")
    if not isinstance(password, bytes):
        problems.append(f"the password is of type {type(password).__name__}: give bytes")
    if not isinstance(custom, Mapping):
        problems.append(f"custom metadata {arguments.shown(custom)}: give a dict")
        custom = {}
    for key, value in custom.items():
        if not isinstance(key, str) or not isinstance(value, bytes):
            named = f"{arguments.shown(key)} = {arguments.shown(value)}"
            problems.append(f"custom metadata {named}: keys are text and values bytes")
        elif not arguments.is_unicode(key):
            problems.append(f"custom metadata {quoted(key)}: the key has half a surrogate pair")
    if problems:
        raise ConfigError(problems)


def _check_ack_after(custom: Mapping[str, bytes], *, deferred_sync: bool) -> None:
    ack_after = custom.get(ACK_AFTER, b"sync")
    if ack_after != b"sync":
        shown = ack_after.decode(errors="replace")
        raise ConfigError(
            [
                f"custom metadata {ACK_AFTER} = {quoted(shown)}: the one value that there is is 'sync'"
            ]
        )
    if ACK_AFTER in custom and deferred_sync:
        raise ConfigError(
            [f"custom metadata {ACK_AFTER} = 'sync' and deferred sync contradict each other"]
        )
