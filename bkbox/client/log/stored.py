"""A log's list in the metadata store: read, and replaced by compare-and-set."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable

from bkbox.base.commandline import cluster_command
from bkbox.base.ids import LedgerId
from bkbox.client.inner import Inner
from bkbox.client.log.ledger_list import LedgerList, decode, encode
from bkbox.errors import (
    EncodingError,
    LedgerError,
    LogLedgerLostError,
    LogTruncatedError,
    MetadataError,
    NoSuchLogError,
    VersionConflictError,
)
from bkbox.metadata.base import MetadataStore
from bkbox.metadata.versioned import Versioned

Change = Callable[[LedgerList], LedgerList]


class StoredList:
    """The list of one log."""

    def __init__(self, store: MetadataStore, name: str) -> None:
        self.name = name
        self._store = store

    async def find(self, *, linearizable: bool = False) -> Versioned[LedgerList] | None:
        """None if there never was one. A deleted log has a list that is marked as deleted. Raises MetadataError."""
        found = await self._store.logs.find(self.name, linearizable=linearizable)
        return None if found is None else await self._decoded(found)

    async def read(self) -> Versioned[LedgerList]:
        """The newest list. Raises NoSuchLogError, MetadataError."""
        found = await self.find(linearizable=True)
        if found is None or found.value.deleted:
            raise NoSuchLogError(f"there is no log {self.name}")
        return found

    async def new(self) -> LedgerList:
        """The first list of a new log of this cluster."""
        return LedgerList(await self._store.instance_id())

    async def write(self, changed: LedgerList, expected_version: int | None) -> int:
        """Replace the list; returns its version. Raises VersionConflictError, MetadataError."""
        return await self._store.logs.write(self.name, encode(changed), expected_version)

    async def change(self, change: Change) -> LedgerList:
        """Change the newest list, and retry while other clients change it. Raises what ``change`` raises,
        NoSuchLogError, MetadataError.
        """
        while True:
            found = await self.read()
            changed = change(found.value)
            if changed == found.value:
                return changed
            try:
                await self.write(changed, found.version)
            except VersionConflictError:
                continue
            return changed

    async def bury(self, doomed: LedgerList) -> None:
        """Delete the ledgers that were taken off the list, and record that. Raises MetadataError."""
        if not doomed.doomed:
            return
        for ledger in doomed.doomed:
            await self._store.delete_ledger(ledger)
        while True:
            found = await self.find(linearizable=True)
            if found is None:
                return
            try:
                await self.write(found.value.buried(doomed.doomed), found.version)
            except VersionConflictError:
                continue
            return

    async def deletion_error(self, ledger: LedgerId) -> LedgerError:
        """The reason that a ledger of the list does not exist. Raises NoSuchLogError, MetadataError."""
        found = (await self.read()).value
        if ledger in found.ledgers:
            forget = cluster_command("log", "forget", self.name, ledger, "--dry-run")
            return LogLedgerLostError(
                f"ledger {ledger} of log {self.name} was deleted, and not by a truncation of the log; "
                f"`{forget}` says what that has cost, and without --dry-run "
                "takes it out of the log",
                found.after(ledger),
            )
        if ledger in found.lost:
            return self.lost(ledger, found)
        return LogTruncatedError(
            f"ledger {ledger} of log {self.name} was truncated while it was read: it begins at {found.start}"
        )

    def lost(self, ledger: LedgerId, found: LedgerList) -> LogLedgerLostError:
        """The error for a reader of a ledger that an operator has taken out."""
        after = found.after(ledger)
        there = f"at {after}:0" if after is not None else "with what is written next"
        text = f"ledger {ledger} of log {self.name} was lost, with its records: the log goes on {there}"
        return LogLedgerLostError(text, after)

    async def watch(self) -> AsyncGenerator[LedgerList, None]:
        """The list now and after each change. Raises NoSuchLogError once it is deleted, MetadataError."""
        async with Inner(self._store.logs.watch(self.name)) as lists:
            async for found in lists:
                if found is None:
                    raise NoSuchLogError(f"there is no log {self.name}")
                changed = (await self._decoded(found)).value
                if changed.deleted:
                    raise NoSuchLogError(f"the log {self.name} was deleted")
                yield changed

    async def _decoded(self, found: Versioned[bytes]) -> Versioned[LedgerList]:
        try:
            decoded = decode(found.value)
        except EncodingError as error:
            raise MetadataError(f"log {self.name}: {error}") from error
        instance = await self._store.instance_id()
        if decoded.instance != instance:
            raise MetadataError(
                f"the list of log {self.name} is of the ledgers of cluster {decoded.instance}, and this is {instance}: "
                "it was left behind when the cluster was made anew"
            )
        return Versioned(decoded, found.version)
