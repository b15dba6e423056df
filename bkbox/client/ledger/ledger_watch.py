"""Work that is abandoned when the metadata of its ledger changes.

A reader that waits for an entry of an open ledger has to hear from the metadata store that the ledger was closed or
its ensemble changed: the bookies that it asked never tell it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

from bkbox.base.ids import LedgerId
from bkbox.client.inner import Inner
from bkbox.errors import HandleClosedError, NoSuchLedgerError
from bkbox.metadata.base import MetadataStore
from bkbox.wire.metadata.ledger import LedgerMetadata

T = TypeVar("T")


class LedgerWatch:
    """Calls ``adopt`` with every change after ``version``, as long as the context lasts."""

    def __init__(
        self,
        store: MetadataStore,
        ledger: LedgerId,
        version: int,
        adopt: Callable[[LedgerMetadata, int], None],
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._version = version
        self._adopt = adopt
        self._changed = asyncio.Event()
        self._following: asyncio.Task[None]

    async def __aenter__(self) -> Self:
        self._following = asyncio.get_running_loop().create_task(self._follow())
        return self

    async def __aexit__(self, *_error: object) -> None:
        following = self._following
        # A task in a reference cycle is collected in any thread, where a Ctrl-C may be lost (sync/loop_thread.py).
        del self._following
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    async def unless_changed(self, work: Coroutine[Any, Any, T]) -> T | None:
        """The result of ``work``; None if the metadata changed before or meanwhile.

        Raises what ``work`` raises, NoSuchLedgerError once the ledger is deleted, MetadataError, HandleClosedError.
        """
        loop = asyncio.get_running_loop()
        working = loop.create_task(work)
        change = loop.create_task(self._changed.wait())
        try:
            await asyncio.wait(
                (working, change, self._following), return_when=asyncio.FIRST_COMPLETED
            )
            if self._following.done():
                self._following.result()
            if working.done():
                return working.result()
            self._changed.clear()
            return None
        finally:
            for task in (working, change):
                task.cancel()
            await asyncio.gather(working, change, return_exceptions=True)

    async def _follow(self) -> None:
        async with Inner(self._store.watch_ledger(self._ledger)) as changes:
            async for found in changes:
                if found is None:
                    raise NoSuchLedgerError(f"ledger {self._ledger} was deleted")
                if found.version > self._version:
                    self._version = found.version
                    self._adopt(found.value, found.version)
                    self._changed.set()
        raise HandleClosedError("the metadata store was closed")
