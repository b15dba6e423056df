"""Decides if a request may create a ledger that this bookie does not have yet.

A bookie creates a ledger with what the first add, recovery add, LAC or fence carries, its key included. So a client
that may recover ledgers could fence ids that do not exist yet, or give a ledger another key before its owner's first
add. Where clients must authenticate, the metadata store is queried first: the ledger must exist there, and the key must
be that of its password. Recovery and repair, which bring a ledger to a bookie that its metadata does not name yet,
pass this check.

A connection whose request waits for the result is not read; other connections are not affected. If the metadata store
does not respond, the request gets EIO: 'unknown'; nothing was done with it. Keys that were found are cached, a
bounded number of them. That a ledger does not exist is true only for the connections that were waiting and is not
cached: it may be created at any moment.

Pure: events and the time are passed in.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from enum import Enum
from itertools import islice

from bkbox.base.constant_time import compare_digest
from bkbox.frontend.loop.routing import SlotWaiter
from bkbox.wire.codes import Code

CHECKS_MAX = 64
"""Checks in flight at once; further connections queue."""

CHECK_TIMEOUT_S = 5.0
"""Seconds to wait for the supervisor, whose own time-out for the metadata store is shorter."""

_UNAVAILABLE_S = 1.0
"""Seconds after a failure in which no check is sent."""

_KEYS_MAX = 10_000


class Finding(Enum):
    """The metadata store's result for a ledger."""

    THERE = "there"
    ABSENT = "absent"
    UNKNOWN = "unknown"
    """Its metadata cannot be read."""
    UNAVAILABLE = "away"
    """The store did not respond."""


_REFUSALS = {
    Finding.ABSENT: Code.ENOLEDGER,
    Finding.UNKNOWN: Code.EIO,
    Finding.UNAVAILABLE: Code.EIO,
}

_Waiting = dict[int, SlotWaiter | None]
"""Waiters by connection number."""


class _Check:
    """One check in flight. ``later``: connections that came after it was sent; its result may be too old for them."""

    __slots__ = ("later", "until_s", "waiting")

    def __init__(self, until_s: float, waiting: _Waiting) -> None:
        self.until_s = until_s
        self.waiting = waiting
        self.later: _Waiting = {}


class LedgerVerification:
    """The checks. ``is_known``: returns True if the directory of ledgers decides about a ledger; ``ask``: starts a
    check, whose result comes through ``found``."""

    def __init__(
        self,
        is_known: Callable[[int], bool],
        ask: Callable[[int], None],
        now_s: Callable[[], float],
    ) -> None:
        self._is_known = is_known
        self._ask = ask
        self._now_s = now_s
        self._keys: OrderedDict[int, bytes] = OrderedDict()
        self._checks: OrderedDict[int, _Check] = OrderedDict()
        """By ledger, in the order of sending."""
        self._line: _Waiting = {}
        """Connections that wait for a check slot."""
        self._refused: dict[int, tuple[int, Code]] = {}
        self._unavailable_until_s = 0.0

    def verdict(self, connection: int, ledger: int, key: bytes | None) -> Code | None:
        """EOK if the request may create the ledger, where there is none yet, else the code to refuse it with. None: it
        has to wait (``wait``), then call again."""
        found = self._keys.get(ledger)
        if self._is_known(ledger):
            # The disk may have refused the request that was checked, and would accept this one's key.
            good = not found or (key is not None and compare_digest(found, key))
            return Code.EOK if good else Code.EUA
        refused = self._refused.pop(connection, None)
        if refused is not None and refused[0] == ledger:
            return refused[1]
        if found is not None:
            self._keys.move_to_end(ledger)
            good = key is not None and (not found or compare_digest(found, key))
            return Code.EOK if good else Code.EUA
        check = self._checks.get(ledger)
        if check is not None:
            check.later[connection] = None
        elif self._now_s() < self._unavailable_until_s:
            return Code.EIO
        elif len(self._checks) >= CHECKS_MAX:
            self._line[connection] = None
        else:
            self._begin(ledger, {connection: None})
        return None

    def wait(self, connection: int, waiter: SlotWaiter) -> bool:
        """Registers a waiter: its ``on_slot_free`` is called when ``verdict`` has a new result. False if the connection
        does not wait for a check."""
        for waiting in self._all_waiting():
            if connection in waiting:
                waiting[connection] = waiter
                return True
        return False

    def found(self, ledger: int, finding: Finding, key: bytes) -> None:
        """Receives the result of ``ask``. ``key``: that of the ledger's password; empty if its metadata has none."""
        check = self._checks.pop(ledger, None)
        if check is None:
            return  # the check had timed out already
        woken = check.waiting
        if finding is Finding.ABSENT and check.later:
            self._begin(ledger, check.later)
        else:
            woken = woken | check.later
        if finding is Finding.THERE:
            self._keys[ledger] = key
            if len(self._keys) > _KEYS_MAX:
                self._keys.popitem(last=False)
        else:
            self._refused.update(dict.fromkeys(woken, (ledger, _REFUSALS[finding])))
        if finding is Finding.UNAVAILABLE:
            self._unavailable_until_s = self._now_s() + _UNAVAILABLE_S
        _wake(woken)
        self._call_up()

    def forget(self, connection: int) -> None:
        """Drops the state of a connection that is closed."""
        self._refused.pop(connection, None)
        for waiting in self._all_waiting():
            waiting.pop(connection, None)

    def wait_s(self) -> float | None:
        """Seconds until ``tick`` must be called; None: no limit."""
        if not self._checks:
            return 0.0 if self._line else None
        first = next(iter(self._checks.values()))
        return max(0.0, first.until_s - self._now_s())

    def tick(self) -> None:
        """Times out the checks that are due, and wakes their waiters."""
        while self._checks and self.wait_s() == 0.0:
            self.found(next(iter(self._checks)), Finding.UNAVAILABLE, b"")
        self._call_up()

    def _begin(self, ledger: int, waiting: _Waiting) -> None:
        self._checks[ledger] = _Check(self._now_s() + CHECK_TIMEOUT_S, waiting)
        self._ask(ledger)

    def _call_up(self) -> None:
        """Wakes as many queued connections as there are free check slots."""
        free = CHECKS_MAX - len(self._checks)
        called = dict(islice(self._line.items(), max(free, 0)))
        for connection in called:
            del self._line[connection]
        _wake(called)

    def _all_waiting(self) -> Iterator[_Waiting]:
        yield self._line
        for check in self._checks.values():
            yield check.waiting
            yield check.later


def _wake(waiting: _Waiting) -> None:
    for waiter in waiting.values():
        if waiter is not None:
            waiter.on_slot_free()
