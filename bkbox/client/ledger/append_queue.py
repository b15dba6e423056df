"""What a ledger's writer was given and is not acknowledged yet: entries, their ids, and who waits for them.

Entries get their ids in the order of the calls, or they come with ids of the caller's own (Java's LedgerHandleAdv).
Then one that comes too early is kept here until those before it are there: either way what is sent is in order and
without a gap, so that the length of the ledger that stands in each entry is what lies before it.
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
    """Of one writer. ``held_bytes``: what was sent, or is to be, counts for in the window; ``early_bytes``: what came
    too early; ``next_entry``: the id of the entry that is sent next; ``gathered``: what is to be sent;
    ``has_own_ids``: whether entries come with their ids."""

    __slots__ = (
        "_early",
        "_ledger",
        "_loop",
        "_waiting",
        "early_bytes",
        "gathered",
        "has_own_ids",
        "held_bytes",
        "next_entry",
    )

    def __init__(self, ledger: LedgerId, loop: asyncio.AbstractEventLoop) -> None:
        self.held_bytes = self.early_bytes = 0
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
        """Whoever waits for the last entry that was, or is to be, sent."""
        return self._waiting[-1][2] if self._waiting else None

    def put(self, payload: bytes) -> int:
        """The next entry; returns what it counts for, of which a promise follows before anything else happens."""
        self.gathered.append(payload)
        self.next_entry += 1
        held = ADD_OVERHEAD_BYTES + len(payload)
        self.held_bytes += held
        return held

    def promise(self, held: int) -> Future:
        """The future of the last entry, and of all since the promise before, which count for so much."""
        future: Future = asyncio.Future(loop=self._loop)  # as create_future() does, a call less
        self._waiting.append((self.next_entry - 1, held, future))
        return future

    def take(self) -> list[bytes]:
        """``gathered``, which is empty then."""
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

    def is_next(self, wanted: int) -> bool:
        """Whether an entry with this id can be sent now, and does not come too early. Raises EntryIdError,
        InvalidIdError."""
        number = arguments.entry(wanted)
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
        """An entry that has to wait for those before it."""
        assert self._early is not None
        future: Future = asyncio.Future(loop=self._loop)
        self._early[number] = payload, future
        self.early_bytes += ADD_OVERHEAD_BYTES + len(payload)
        return future

    def follow(self) -> None:
        """Those that waited for the entry that was put last are to be sent after it."""
        while self._early and (early := self._early.pop(self.next_entry, None)) is not None:
            payload, future = early
            held = self.put(payload)
            self.early_bytes -= held
            self._waiting.append((self.next_entry - 1, held, future))

    # ---- how it ends ----------------------------------------------------------------------------

    def acked(self, last: int) -> None:
        """Everything up to this entry is acknowledged."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= last:
            entry, held, future = waiting.popleft()
            self.held_bytes -= held
            if not future.done():
                future.set_result(entry)

    def closed(self) -> None:
        """What came too early is never sent."""
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
        """None of it is acknowledged any more."""
        for future in self._left():
            if not future.done():
                future.set_exception(error)
        self.gathered.clear()
        self._waiting.clear()
        self._no_more_early()
        self.held_bytes = 0

    def _no_more_early(self) -> None:
        self.early_bytes = 0
        if self._early is not None:
            self._early.clear()

    def _left(self) -> Iterator[Future]:
        for _, _, future in self._waiting:
            yield future
        for _, future in (self._early or {}).values():
            yield future
