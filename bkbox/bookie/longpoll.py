"""Waiting long polls: version 3 reads whose response is due when the ledger's LAC passes the one their client has seen.

Pure: events and the time come in, the polls that are due come out. A wait ends when the LAC advances beyond
``previous_lac``, when something else happens to the ledger (its first fence, limbo), or at its deadline. If the
connection is closed it ends without a response. Polls are due in the order of arrival. At most LONG_POLLS_MAX wait
at once.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable

from bkbox.base.limits import LONG_POLLS_MAX
from bkbox.base.values import struct
from bkbox.wire import v3


@struct
class Poll:
    """A waiting poll: its connection, its request, and its deadline."""

    connection: int
    request: v3.ReadRequest
    deadline_ms: int
    waits: bool = True


class LongPolls:
    """All waiting polls of one disk."""

    def __init__(self, polls_max: int = LONG_POLLS_MAX) -> None:
        self._polls_max = polls_max
        self._by_ledger: dict[int, dict[Poll, None]] = {}
        self._by_connection: dict[int, dict[Poll, None]] = {}
        self._deadlines: list[tuple[int, int, Poll]] = []
        self._order = itertools.count()
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def __contains__(self, ledger: int) -> bool:
        """True if a poll waits for this ledger."""
        return ledger in self._by_ledger

    def park(self, connection: int, request: v3.ReadRequest, deadline_ms: int) -> bool:
        """Add a poll; False if LONG_POLLS_MAX wait already."""
        if self._waiting >= self._polls_max:
            return False
        poll = Poll(connection, request, deadline_ms)
        self._by_ledger.setdefault(request.ledger_id, {})[poll] = None
        self._by_connection.setdefault(connection, {})[poll] = None
        heapq.heappush(self._deadlines, (deadline_ms, next(self._order), poll))
        self._waiting += 1
        return True

    def advanced(self, ledger: int, lac: int) -> list[Poll]:
        """The ledger's LAC is at least ``lac``: returns the polls whose wait this ends."""
        polls = self._by_ledger.get(ledger, ())
        return self._end([poll for poll in polls if _previous_lac(poll) < lac])

    def disturbed(self, ledger: int) -> list[Poll]:
        """Something else happened to the ledger: returns all its polls."""
        return self._end(list(self._by_ledger.get(ledger, ())))

    def expired(self, now_ms: int) -> list[Poll]:
        """The polls whose deadline has passed."""
        found = []
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            _deadline, _order, poll = heapq.heappop(self._deadlines)
            if poll.waits:
                found.append(poll)
        return self._end(found)

    @property
    def next_deadline_ms(self) -> int | None:
        """The time, in ms, when ``expired`` must be called again; None while no poll waits."""
        while self._deadlines and not self._deadlines[0][2].waits:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def drop(self, connection: int) -> None:
        """Drop the polls of a closed connection: their responses have no receiver."""
        self._end(list(self._by_connection.get(connection, ())))

    def drop_all(self, connections: range) -> None:
        """Drop the polls of all these connections."""
        for connection in [each for each in self._by_connection if each in connections]:
            self.drop(connection)

    def _end(self, polls: Iterable[Poll]) -> list[Poll]:
        ended = list(polls)
        for poll in ended:
            poll.waits = False
            _discard(self._by_ledger, poll.request.ledger_id, poll)
            _discard(self._by_connection, poll.connection, poll)
        self._waiting -= len(ended)
        if len(self._deadlines) > 2 * self._waiting + 1024:
            self._deadlines = [item for item in self._deadlines if item[2].waits]
            heapq.heapify(self._deadlines)
        return ended


def _previous_lac(poll: Poll) -> int:
    assert poll.request.previous_lac is not None
    return poll.request.previous_lac


def _discard(polls: dict[int, dict[Poll, None]], key: int, poll: Poll) -> None:
    polls[key].pop(poll, None)
    if not polls[key]:
        del polls[key]
