"""Queries to the supervisor about ledgers that this front-end does not know, where a bookie has several front-ends.

Another front-end may have had such a ledger assigned to a disk a moment ago. The supervisor records each assignment
before any front-end is told of it, so before any request for the ledger reaches a worker. Invariant: a ledger is denied
only by an answer to a query that was sent after the request had come in. So an entry that was acknowledged over any
front-end is never denied over another.

Queries of one event-loop turn are sent as one batch. A connection whose request waits is not read. Without an answer
within QUERY_TIMEOUT_S the request gets EIO, 'unknown': nothing was done with it.

Pure: events and the time are passed in.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from enum import Enum

from bkbox.frontend.loop.routing import SlotWaiter

QUERY_TIMEOUT_S = 5.0

_Waiting = dict[int, SlotWaiter | None]
"""Waiters by connection number."""


class Answer(Enum):
    """The supervisor's answer about a ledger that has no disk."""

    NOWHERE = -1
    """No disk has it."""
    UNKNOWN = -2
    """It may be on a disk that cannot be asked, or no disk takes it."""


class _Batch:
    """Queries that are sent together: the waiters by ledger."""

    def __init__(self) -> None:
        self.until_s = 0.0
        self.ledgers: dict[int, _Waiting] = {}


class LedgerQueries:
    """The queries. ``send``: sends a batch: its number, and the ledgers, each with True if it is to be created."""

    def __init__(
        self, send: Callable[[int, list[tuple[int, bool]]], None], now_s: Callable[[], float]
    ) -> None:
        self._send = send
        self._now_s = now_s
        self._next = _Batch()
        self._to_create: set[int] = set()
        self._sent: OrderedDict[int, _Batch] = OrderedDict()
        self._number = 0
        self._answers: dict[int, tuple[int, Answer]] = {}
        """By connection: the ledger of its request, and the answer."""

    def answer(self, connection: int, ledger: int, *, creates: bool) -> Answer | None:
        """The answer to a query about the ledger of the connection's request. None: the request has to wait (``wait``),
        then call again, unless the ledger is known by then."""
        found = self._answers.pop(connection, None)
        if found is not None and found[0] == ledger:
            return found[1]
        self._next.ledgers.setdefault(ledger, {})[connection] = None
        if creates:
            self._to_create.add(ledger)
        return None

    def wait(self, connection: int, waiter: SlotWaiter) -> bool:
        """Registers a waiter: its ``on_slot_free`` is called when there is an answer. False if the connection does not
        wait for one."""
        for waiting in self._next.ledgers.values():
            if connection in waiting:
                waiting[connection] = waiter
                return True
        return False

    def placed(self, ledger: int) -> None:
        """The ledger has a disk, and the front-end knows it."""
        for batch in (self._next, *self._sent.values()):
            _wake(batch.ledgers.pop(ledger, {}))

    def denied(self, number: int, ledger: int, answer: Answer) -> None:
        """The answer to a query of a batch about a ledger without a disk."""
        batch = self._sent.get(number)
        waiting = {} if batch is None else batch.ledgers.pop(ledger, {})
        self._answers.update(dict.fromkeys(waiting, (ledger, answer)))
        _wake(waiting)

    def forget(self, connection: int) -> None:
        """Drops the state of a connection that is closed."""
        self._answers.pop(connection, None)
        for batch in (self._next, *self._sent.values()):
            for waiting in batch.ledgers.values():
                waiting.pop(connection, None)

    def wait_s(self) -> float | None:
        """Seconds until ``tick`` must be called; None: no limit."""
        if self._next.ledgers:
            return 0.0
        if not self._sent:
            return None
        return max(0.0, next(iter(self._sent.values())).until_s - self._now_s())

    def tick(self) -> None:
        """Sends the queries of the last turn; times out those that are due."""
        now_s = self._now_s()
        if self._next.ledgers:
            batch, self._next = self._next, _Batch()
            to_create, self._to_create = self._to_create, set()
            self._number += 1
            batch.until_s = now_s + QUERY_TIMEOUT_S
            self._sent[self._number] = batch
            self._send(self._number, [(each, each in to_create) for each in batch.ledgers])
        for number, batch in list(self._sent.items()):
            if batch.until_s <= now_s:
                for ledger in list(batch.ledgers):
                    self.denied(number, ledger, Answer.UNKNOWN)
            if not batch.ledgers:
                del self._sent[number]


def _wake(waiting: _Waiting) -> None:
    for waiter in waiting.values():
        if waiter is not None:
            waiter.on_slot_free()
