"""Read-only requests: an operator, or a decommission, wants the bookie or one of its disks to take no more entries.

A request persists until it is revoked, unlike a disk's condition (full, failed). Requests and conditions have distinct
names, none of which ends with another. A request is noted on the disks (``<disk>/READONLY``) before it takes effect:
one for the whole bookie is noted on every disk, also on disks that join later, and one disk's note is enough for it to
hold. So requests outlive restarts and lost disks. Where a note cannot be read, the disk is read-only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from bkbox.base.text import error_text
from bkbox.bookie.readonly import INTENTS, OPERATOR
from bkbox.errors import BkboxError, DiskChangeError, DiskError
from bkbox.ipc.messages.disk import SetReadOnlyReasons
from bkbox.storage.checksummed_document import read_document, write_document
from bkbox.storage.files import Files, unlink_durably

if TYPE_CHECKING:
    from bkbox.supervisor.disks.disks import Disk

    class NewLedgerNews(Protocol):
        """The front-ends, as read-only requests use them."""

        def allow_new_ledgers(self) -> None: ...

    class ReadOnlyBookie(Protocol):
        """The part of the supervisor that read-only requests use."""

        disks: list[Disk]

        @property
        def frontends(self) -> NewLedgerNews: ...

        async def publish_mode(self) -> None: ...


log = logging.getLogger(__name__)

READONLY_NAME = "READONLY"
_RESPONSE_TIMEOUT_S = 30.0


def read_mark(files: Files, path: Path) -> tuple[frozenset[str], frozenset[str]]:
    """Read a disk's note: the reasons for the whole bookie, and the reasons for this disk."""
    try:
        fields = read_document(files, path / READONLY_NAME)
        if fields is None:
            return frozenset(), frozenset()
        return INTENTS.intersection(fields["bookie"]), INTENTS.intersection(fields["disk"])
    except (DiskError, KeyError, TypeError) as error:
        log.error(
            "%s cannot be read: the disk takes no entries: %s",
            path / READONLY_NAME,
            error_text(error),
        )
        return frozenset(), frozenset({OPERATOR})


class ReadOnlyRequests:
    """The read-only requests of one bookie."""

    def __init__(self, bookie: ReadOnlyBookie, files: Files) -> None:
        self._bookie = bookie
        self._files = files
        self._one = asyncio.Lock()
        self.of_bookie: frozenset[str] = frozenset()

    def load(self) -> None:
        """Read the notes of all disks. Called at the start, before any disk is opened."""
        for disk in self._bookie.disks:
            of_bookie, disk.readonly_requests = read_mark(self._files, disk.path)
            self.of_bookie |= of_bookie

    def of(self, disk: Disk) -> list[str]:
        """The reasons that hold for a disk."""
        return sorted(self.of_bookie | disk.readonly_requests)

    def carry_over(self, disk: Disk) -> None:
        """Note the bookie's requests on a disk that is taken into use."""
        if self.of_bookie and read_mark(self._files, disk.path) != (
            self.of_bookie,
            disk.readonly_requests,
        ):
            try:
                self._note(disk, self.of_bookie, disk.readonly_requests)
            except DiskError as error:  # the other disks have the note
                log.warning("%s: %s", disk.path, error)

    # ---- changes ------------------------------------------------------------------------------------

    async def set_for_bookie(self, reasons: Collection[str], *, wanted: bool) -> list[str]:
        """Set or revoke ``reasons`` for the whole bookie. When this returns it is in force: no ordinary add is
        accepted, or adds are accepted again as far as ``reasons`` forbade them. Returns notes for the operator. Raises
        DiskChangeError where no disk could take the note."""
        async with self._one:
            after = self.of_bookie.union(reasons) if wanted else self.of_bookie.difference(reasons)
            if after == self.of_bookie:
                return []
            notes = []
            for disk in self._bookie.disks:
                try:
                    await asyncio.to_thread(self._note, disk, after, disk.readonly_requests)
                except DiskError as error:
                    notes.append(f"warning: it could not be noted on {disk.path}: {error}")
            if len(notes) == len(self._bookie.disks):
                raise DiskChangeError("; ".join(notes))
            self.of_bookie = after
            await self._apply()
            return notes

    async def set_for_disk(self, disk: Disk, *, wanted: bool) -> None:
        """The same for one disk, at an operator's request. On DiskError nothing has changed."""
        async with self._one:
            after = frozenset({OPERATOR}) if wanted else frozenset()
            if after == disk.readonly_requests:
                return
            await asyncio.to_thread(self._note, disk, self.of_bookie, after)
            disk.readonly_requests = after
            await self._apply()

    def _note(self, disk: Disk, of_bookie: frozenset[str], of_disk: frozenset[str]) -> None:
        path = disk.path / READONLY_NAME
        if of_bookie or of_disk:
            fields = {"bookie": sorted(of_bookie), "disk": sorted(of_disk)}
            write_document(self._files, path, fields)
        else:
            unlink_durably(self._files, path)

    async def _apply(self) -> None:
        self._bookie.frontends.allow_new_ledgers()
        for disk in self._bookie.disks:
            if disk.usable:
                with contextlib.suppress(BkboxError, TimeoutError):  # else told when linked
                    await disk.call(SetReadOnlyReasons(reasons=self.of(disk)), _RESPONSE_TIMEOUT_S)
        await self._bookie.publish_mode()
