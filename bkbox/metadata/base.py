"""The interface of the metadata store: ledgers, cookies and registered bookies of one cluster.

Rules that every store keeps:

- A write that succeeded survives a power cut. A write that raised MetadataUnavailableError, or whose caller was
  cancelled, may have taken effect all the same.
- A value has a version: 0 when it is created, one more with every write. Writes name the version they replace
  (compare-and-set), so of two writers that read the same version one loses with VersionConflictError.
- A registration belongs to a living process; it vanishes with the process and needs no clean-up.
- Watches give the present value first and then the newest after each change; changes in quick succession may be
  merged. While the store cannot be reached a watch is late; it does not end. Closing the store ends its watches and
  its registrations.

Calls after ``close()`` raise HandleClosedError. Source: LedgerManager.java, RegistrationManager.java,
RegistrationClient.java.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import Self

from bkbox.base.ids import BookieId, LedgerId
from bkbox.base.values import frozen_struct
from bkbox.errors import MetadataError
from bkbox.metadata.loglists import LogLists
from bkbox.metadata.maintenance import MaintenanceWindows
from bkbox.metadata.underreplication import UnderReplication
from bkbox.metadata.versioned import Versioned
from bkbox.wire.metadata.ledger import LedgerMetadata
from bkbox.wire.metadata.service_info import ServiceInfo

RANGE_LEDGERS_MAX = 1_000
"""Ledgers in one page of ledger_ranges()."""


@frozen_struct
class RegisteredBookie:
    """A registered bookie: True if it accepts new entries, and its address."""

    read_only: bool
    service_info: ServiceInfo


class Registration(ABC):
    """One bookie's registration. It renews itself until closed.

    No method raises because the store cannot be reached: that is logged, and the next renewal writes the requested
    state.
    """

    @abstractmethod
    async def set_read_only(self, read_only: bool) -> None:
        """Publish whether the bookie accepts new entries."""

    @abstractmethod
    def unregistered_s(self) -> float:
        """Seconds for which the bookie has not been known to be registered; 0.0 while it is."""

    @abstractmethod
    async def close(self) -> None:
        """Unregister. Idempotent."""


class MetadataStore(ABC):
    """A connection to the metadata of one cluster; an asynchronous context manager."""

    @abstractmethod
    async def instance_id(self) -> str:
        """The cluster's identity, a UUID as text; created with the store and never changed."""

    # ---- ledgers ----------------------------------------------------------------------------

    @abstractmethod
    async def new_ledger_id(self) -> LedgerId:
        """An id that no ledger has and that this method never returns again."""

    @abstractmethod
    async def create_ledger(self, metadata: LedgerMetadata) -> Versioned[LedgerMetadata]:
        """Store a new ledger.

        Raises LedgerExistsError, unless the stored ledger carries the same creator token (not 0): then the response
        to an earlier attempt was lost, and this call returns its success.
        """

    @abstractmethod
    async def read_ledger(
        self, ledger: LedgerId, *, linearizable: bool = False
    ) -> Versioned[LedgerMetadata]:
        """The metadata of a ledger. ``linearizable``: a linearizable read. Otherwise the result may be stale, which a
        later write with its version detects.

        Raises NoSuchLedgerError; MetadataError if the stored metadata cannot be decoded.
        """

    @abstractmethod
    async def write_ledger(
        self, metadata: LedgerMetadata, expected_version: int
    ) -> Versioned[LedgerMetadata]:
        """Replace a ledger's metadata; the creator token is dropped, as by every update.

        Raises VersionConflictError, NoSuchLedgerError.
        """

    @abstractmethod
    async def delete_ledger(self, ledger: LedgerId) -> None:
        """Remove a ledger, whatever its version; succeeds if it does not exist."""

    @abstractmethod
    def ledger_ranges(self) -> AsyncIterator[list[LedgerId]]:
        """All ledgers, ascending, in pages of at most RANGE_LEDGERS_MAX, none empty.

        A ledger that exists from the first page to the last is in it exactly once.
        """

    @abstractmethod
    def watch_ledger(self, ledger: LedgerId) -> AsyncIterator[Versioned[LedgerMetadata] | None]:
        """The ledger now and after each change; None while there is no such ledger."""

    @abstractmethod
    async def ended_ledgers(self) -> list[LedgerId]:
        """Every ledger whose metadata records an accepted loss (wire/metadata/loss.py), ascending. It may name one that
        was deleted, or whose record was not written in the end.
        """

    @property
    @abstractmethod
    def under_replication(self) -> UnderReplication:
        """Ledgers that lack replicas, and the workers that hold them."""

    async def underreplicated(self) -> frozenset[LedgerId]:
        """Ledgers that are marked for re-replication.

        A ledger stays marked until its metadata names the bookies that it was copied to.
        """
        return frozenset([ledger async for ledger in self.under_replication.ledgers()])

    @property
    @abstractmethod
    def maintenance_windows(self) -> MaintenanceWindows:
        """Bookies in a maintenance window: see maintenance.py."""

    @property
    @abstractmethod
    def logs(self) -> LogLists:
        """The lists of ledgers of logs, and their elections."""

    # ---- cookies ----------------------------------------------------------------------------

    @abstractmethod
    async def read_cookie(self, bookie: BookieId) -> Versioned[bytes] | None:
        """The bookie's cookie, or None."""

    @abstractmethod
    async def write_cookie(
        self, bookie: BookieId, cookie: bytes, expected_version: int | None
    ) -> Versioned[bytes]:
        """Create the cookie (expected_version None) or replace it. Raises VersionConflictError."""

    @abstractmethod
    async def delete_cookie(self, bookie: BookieId) -> None:
        """Remove a cookie, whatever its version; succeeds if it does not exist. The record of the bookie's disks
        stays: they may come back.
        """

    @abstractmethod
    async def cookies(self) -> dict[BookieId, Versioned[bytes]]:
        """The cookies of all bookies that the cluster knows, running or not."""

    # ---- records of disks -------------------------------------------------------------------

    @abstractmethod
    async def read_disk_record(self, bookie: BookieId) -> Versioned[bytes] | None:
        """The disk record of a bookie of bkbox (supervisor/disks/witness.py), or None. Java has none."""

    @abstractmethod
    async def write_disk_record(
        self, bookie: BookieId, record: bytes, expected_version: int | None
    ) -> Versioned[bytes]:
        """Create the record (expected_version None) or replace it. Raises VersionConflictError."""

    # ---- registration -----------------------------------------------------------------------

    @abstractmethod
    async def register(
        self, bookie: BookieId, service_info: ServiceInfo, *, read_only: bool
    ) -> Registration:
        """Register the bookie.

        The registration of a dead process is taken over. Raises OperatorError if a living one holds the id.
        """

    @abstractmethod
    async def bookies(self) -> dict[BookieId, RegisteredBookie]:
        """The bookies that are registered now."""

    # ---- other software ---------------------------------------------------------------------

    async def read_znode(self, path: str) -> bytes:
        """Data that other software keeps in the same store under this path. Raises MetadataError, also if the store
        has no such path.
        """
        raise MetadataError("the metadata store is not ZooKeeper: it has no znodes")

    # ---- lifetime ---------------------------------------------------------------------------

    @abstractmethod
    async def close(self) -> None:
        """Close registrations, watches and the connection. Idempotent."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()
