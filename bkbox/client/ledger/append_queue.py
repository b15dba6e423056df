"""The entries of a ledger's writer that are not acknowledged: payloads, ids, and the futures of their callers.

Entries get their ids in the order of the calls, or they come with ids of the caller's own (Java's LedgerHandleAdv).
An entry with an id of its own that comes too early is kept until the entries before it are there. Either way entries
are sent in order and without a gap, so the ledger length stored in each entry counts exactly what precedes it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Any

from bkbox.base.ids import EntryId, LedgerId
from bkbox.client import arguments
from bkbox.client.ledger.driver import ADD_OVERHEAD_BYTES
from bkbox.errors import EntryIdError, HandleClosedError

Future = asyncio.Future[EntryId]


class Pending:
    """The queue of one writer. ``buffered_bytes``: what the sent and queued entries count for in the window;
    ``early_bytes``: the same of early entries; ``next_entry``: the id of the next entry to send; ``gathered``: the
    payloads to send; ``has_own_ids``: True if entries come with their ids.
    """

    __slots__ = (
        "_early",
        "_ledger",
        "_loop",
        "_waiting",
        "buffered_bytes",
        "early_bytes",
        "gathered",
        "has_own_ids",
        "next_entry",
    )

    def __init__(self, ledger: LedgerId, loop: asyncio.AbstractEventLoop) -> None:
        self.buffered_bytes = self.early_bytes = 0
        self.next_entry = 0
        self._ledger = ledger
        self._loop = loop
        self.gathered: list[bytes] = []
        # Any: an EntryId, without a call for each entry.
        self._waiting: deque[tuple[Any, int, Future]] = deque()
        self.has_own_ids = False
        self._early: dict[int, tuple[bytes, Future]] | None = None

    @property
    def last(self) -> Future | None:
        """The future of the last entry that was sent or queued."""
        return self._waiting[-1][2] if self._waiting else None

    def put(self, payload: bytes) -> int:
        """Queue the next entry; returns its bytes in the window, for which ``new_future`` follows before anything else
        happens.
        """
        self.gathered.append(payload)
        self.next_entry += 1
        size = ADD_OVERHEAD_BYTES + len(payload)
        self.buffered_bytes += size
        return size

    def new_future(self, size: int) -> Future:
        """The future of the last entry, and of all since the previous future, which count for ``size`` bytes."""
        future: Future = asyncio.Future(loop=self._loop)  # as create_future() does, a call less
        self._waiting.append((self.next_entry - 1, size, future))
        return future

    def pop_all(self) -> list[bytes]:
        """``gathered``, which is empty afterwards."""
        gathered, self.gathered = self.gathered, []
        return gathered

    # ---- ids of the caller's own ----------------------------------------------------------------

    def must_have_no_ids(self) -> None:
        """Raises EntryIdError."""
        if self.has_own_ids:
            raise EntryIdError(
                f"the entries of ledger {self._ledger} come with ids of their own since the first one did: "
                "append each with entry_id="
            )

    def is_next(self, entry: int) -> bool:
        """True if an entry with this id can be sent now, and is not early. Raises EntryIdError, InvalidIdError."""
        number = arguments.entry(entry)
        if self._early is None:
            if self.next_entry:
                raise EntryIdError(
                    f"the entries of ledger {self._ledger} get their ids in the order of the calls since the first one "
                    f"did: entry_id={number} cannot be chosen any more"
                )
            self._early = {}
            self.has_own_ids = True
        if number < self.next_entry or number in self._early:
            raise EntryIdError(f"entry {number} of ledger {self._ledger} was appended before")
        return number == self.next_entry

    def put_out_of_order(self, number: int, payload: bytes) -> Future:
        """Keep an entry until the entries before it are there."""
        assert self._early is not None
        future: Future = asyncio.Future(loop=self._loop)
        self._early[number] = payload, future
        self.early_bytes += ADD_OVERHEAD_BYTES + len(payload)
        return future

    def follow(self) -> None:
        """Queue the early entries that follow the entry put last."""
        while self._early and (early := self._early.pop(self.next_entry, None)) is not None:
            payload, future = early
            size = self.put(payload)
            self.early_bytes -= size
            self._waiting.append((self.next_entry - 1, size, future))

    # ---- outcomes -------------------------------------------------------------------------------

    def acked(self, last: int) -> None:
        """Every entry up to this one is acknowledged."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= last:
            entry, size, future = waiting.popleft()
            self.buffered_bytes -= size
            if not future.done():
                future.set_result(entry)

    def closed(self) -> None:
        """Fail the early entries, which are never sent."""
        for number, (_, future) in sorted((self._early or {}).items()):
            if not future.done():
                future.set_exception(
                    HandleClosedError(
                        f"entry {number} was never sent: ledger {self._ledger} was closed, and entry {self.next_entry} "
                        "before it was not appended"
                    )
                )
        self._no_more_early()

    def failed(self, error: BaseException) -> None:
        """Fail every entry: none is acknowledged any more."""
        for future in self._left():
            if not future.done():
                future.set_exception(error)
        self.gathered.clear()
        self._waiting.clear()
        self._no_more_early()
        self.buffered_bytes = 0

    def _no_more_early(self) -> None:
        self.early_bytes = 0
        if self._early is not None:
            self._early.clear()

    def _left(self) -> Iterator[Future]:
        for _, _, future in self._waiting:
            yield future
        for _, future in (self._early or {}).values():
            yield future
