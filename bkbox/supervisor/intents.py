"""What an operator, or a decommission, wants: that the bookie, or one of its disks, takes no more entries.

That is something else than what a disk says of itself (full, failed): it is not over before it is taken back, and each
has a name of its own, so that none of them ends with another. It is noted on the disks (``<disk>/READONLY``) before
anybody acts on it: what the whole bookie is wanted to do on every one of them, also on those that join later, and any
one that says so counts. So it outlives restarts and lost disks; where one cannot be read, the answer is yes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from bkbox.base.words import error_text
from bkbox.bookie.readonly import INTENTS, OPERATOR
from bkbox.errors import BkboxError, DiskChangeError, DiskError
from bkbox.ipc import messages
from bkbox.storage.files import Files, unlink_durably
from bkbox.storage.sealed import read_document, write_document

if TYPE_CHECKING:
    from bkbox.supervisor.disks import Disk

    class ReadOnlyBookie(Protocol):
        """What intents need of the supervisor."""

        disks: list[Disk]

        def allow_new_ledgers(self) -> None: ...

        async def tell_mode(self) -> None: ...


log = logging.getLogger(__name__)

READONLY_NAME = "READONLY"
_FORMAT = 1
_ANSWER_S = 30.0


def read_mark(files: Files, path: Path) -> tuple[frozenset[str], frozenset[str]]:
    """What is noted on a disk: of the whole bookie, of this disk."""
    try:
        fields = read_document(files, path / READONLY_NAME, _FORMAT)
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


class Intents:
    """Those of one bookie."""

    def __init__(self, bookie: ReadOnlyBookie, files: Files) -> None:
        self._bookie = bookie
        self._files = files
        self._one = asyncio.Lock()
        self.of_bookie: frozenset[str] = frozenset()

    def load(self) -> None:
        """At the start, before any disk is opened."""
        for disk in self._bookie.disks:
            of_bookie, disk.intents = read_mark(self._files, disk.path)
            self.of_bookie |= of_bookie

    def of(self, disk: Disk) -> list[str]:
        """What holds for a disk."""
        return sorted(self.of_bookie | disk.intents)

    def carry_over(self, disk: Disk) -> None:
        """A disk is taken into use: what holds for the bookie holds for it."""
        if self.of_bookie and read_mark(self._files, disk.path) != (self.of_bookie, disk.intents):
            try:
                self._note(disk, self.of_bookie, disk.intents)
            except DiskError as error:  # the other disks say it
                log.warning("%s: %s", disk.path, error)

    # ---- changes ------------------------------------------------------------------------------------

    async def set_for_bookie(self, reasons: Collection[str], *, wanted: bool) -> list[str]:
        """When this returns, no ordinary add is taken, or they are taken again as far as it is about ``reasons``; what
        there is to say about it. DiskChangeError where it could be noted nowhere."""
        async with self._one:
            after = self.of_bookie.union(reasons) if wanted else self.of_bookie.difference(reasons)
            if after == self.of_bookie:
                return []
            said = []
            for disk in self._bookie.disks:
                try:
                    await asyncio.to_thread(self._note, disk, after, disk.intents)
                except DiskError as error:
                    said.append(f"warning: it could not be noted on {disk.path}: {error}")
            if len(said) == len(self._bookie.disks):
                raise DiskChangeError("; ".join(said))
            self.of_bookie = after
            await self._take_effect()
            return said

    async def set_for_disk(self, disk: Disk, *, wanted: bool) -> None:
        """The same for one disk, as an operator wants it. DiskError: nothing has changed."""
        async with self._one:
            after = frozenset({OPERATOR}) if wanted else frozenset()
            if after == disk.intents:
                return
            await asyncio.to_thread(self._note, disk, self.of_bookie, after)
            disk.intents = after
            await self._take_effect()

    def _note(self, disk: Disk, of_bookie: frozenset[str], of_disk: frozenset[str]) -> None:
        path = disk.path / READONLY_NAME
        if of_bookie or of_disk:
            fields = {"bookie": sorted(of_bookie), "disk": sorted(of_disk)}
            write_document(self._files, path, _FORMAT, fields)
        else:
            unlink_durably(self._files, path)

    async def _take_effect(self) -> None:
        self._bookie.allow_new_ledgers()
        for disk in self._bookie.disks:
            if disk.usable:
                with contextlib.suppress(BkboxError, TimeoutError):  # it is told when it is linked
                    await disk.call(messages.StayReadOnly(reasons=self.of(disk)), _ANSWER_S)
        await self._bookie.tell_mode()
