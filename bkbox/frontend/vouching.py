"""Whether a ledger that this bookie does not hold yet may be created by the request that names it first.

A bookie creates a ledger with whatever the first add, recovery add, LAC or fence brings along, its key included. So a
client that may recover ledgers could fence ids that do not exist yet, or give a ledger another key before its owner
comes. Where clients have to authenticate, the metadata store is asked first: the ledger has to be there, and the key
has to be that of its password. Recoveries and repair, which bring a ledger to a bookie that its metadata does not name
yet, pass.

A connection whose request waits for the answer is not read, and no other one waits. Where the metadata store does not
answer the request is answered EIO: 'unknown'; nothing was done with it. Keys that were found are kept, a bounded number
of them; that a ledger is not there is true for the connections that were waiting, and for nobody later: it may be
created at any moment.

Pure: told what happens and what time it is.
"""

from __future__ import annotations

import hmac
from collections import OrderedDict
from collections.abc import Callable, Iterator
from enum import Enum
from itertools import islice

from bkbox.kernel.routes import Waiter
from bkbox.wire.codes import Code

CHECKS_MAX = 64
"""Under way at once; connections that want one more wait in line."""

PATIENCE_S = 5.0
"""With the supervisor, which has less with the metadata store."""

_AWAY_S = 1.0
"""After a failure nobody is asked for so long."""

_KEYS_MAX = 10_000


class Finding(Enum):
    """What the metadata store has to say of a ledger."""

    THERE = "there"
    ABSENT = "absent"
    UNKNOWN = "unknown"
    """What it has cannot be read."""
    AWAY = "away"
    """It did not answer."""


_REFUSALS = {Finding.ABSENT: Code.ENOLEDGER, Finding.UNKNOWN: Code.EIO, Finding.AWAY: Code.EIO}

_Waiting = dict[int, Waiter | None]
"""By the number of the connection."""


class _Check:
    """One question that is under way. ``behind``: connections that came after it was asked: it may be older than they
    are."""

    __slots__ = ("behind", "until_s", "waiting")

    def __init__(self, until_s: float, waiting: _Waiting) -> None:
        self.until_s = until_s
        self.waiting = waiting
        self.behind: _Waiting = {}


class Vouching:
    """``is_known``: whether the table of places decides about a ledger; ``ask``: has ``found`` called with what the
    metadata store says."""

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
        """By ledger, in the order in which they were asked."""
        self._line: _Waiting = {}
        """Connections for which there were too many checks."""
        self._refused: dict[int, tuple[int, Code]] = {}
        self._away_until_s = 0.0

    def verdict(self, connection: int, ledger: int, key: bytes | None) -> Code | None:
        """EOK for a request that may create the ledger, where there is none yet, else the code to refuse it with; None:
        it has to wait (``wait``) and is to be looked at again."""
        found = self._keys.get(ledger)
        if self._is_known(ledger):
            # Its disk may have refused the request that was vouched for, and would take the key of this one.
            good = not found or (key is not None and hmac.compare_digest(found, key))
            return Code.EOK if good else Code.EUA
        refused = self._refused.pop(connection, None)
        if refused is not None and refused[0] == ledger:
            return refused[1]
        if found is not None:
            self._keys.move_to_end(ledger)
            good = key is not None and (not found or hmac.compare_digest(found, key))
            return Code.EOK if good else Code.EUA
        check = self._checks.get(ledger)
        if check is not None:
            check.behind[connection] = None
        elif self._now_s() < self._away_until_s:
            return Code.EIO
        elif len(self._checks) >= CHECKS_MAX:
            self._line[connection] = None
        else:
            self._begin(ledger, {connection: None})
        return None

    def wait(self, connection: int, waiter: Waiter) -> bool:
        """Call its ``has_slot`` when ``verdict`` has more to say; False where it does not wait for this."""
        for waiting in self._all_waiting():
            if connection in waiting:
                waiting[connection] = waiter
                return True
        return False

    def found(self, ledger: int, finding: Finding, key: bytes) -> None:
        """What ``ask`` led to. ``key``: that of the ledger's password; empty where its metadata has none."""
        check = self._checks.pop(ledger, None)
        if check is None:
            return  # it came when the patience had ended
        woken = check.waiting
        if finding is Finding.ABSENT and check.behind:
            self._begin(ledger, check.behind)
        else:
            woken = woken | check.behind
        if finding is Finding.THERE:
            self._keys[ledger] = key
            if len(self._keys) > _KEYS_MAX:
                self._keys.popitem(last=False)
        else:
            self._refused.update(dict.fromkeys(woken, (ledger, _REFUSALS[finding])))
        if finding is Finding.AWAY:
            self._away_until_s = self._now_s() + _AWAY_S
        _wake(woken)
        self._call_up()

    def forget(self, connection: int) -> None:
        """The connection is closed."""
        self._refused.pop(connection, None)
        for waiting in self._all_waiting():
            waiting.pop(connection, None)

    def wait_s(self) -> float | None:
        """How long until ``tick`` has to be called; None: for ever."""
        if not self._checks:
            return 0.0 if self._line else None
        first = next(iter(self._checks.values()))
        return max(0.0, first.until_s - self._now_s())

    def tick(self) -> None:
        """Time has passed: some need not wait any longer."""
        while self._checks and self.wait_s() == 0.0:
            self.found(next(iter(self._checks)), Finding.AWAY, b"")
        self._call_up()

    def _begin(self, ledger: int, waiting: _Waiting) -> None:
        self._checks[ledger] = _Check(self._now_s() + PATIENCE_S, waiting)
        self._ask(ledger)

    def _call_up(self) -> None:
        """As many of the line look again as can be asked for."""
        free = CHECKS_MAX - len(self._checks)
        called = dict(islice(self._line.items(), max(free, 0)))
        for connection in called:
            del self._line[connection]
        _wake(called)

    def _all_waiting(self) -> Iterator[_Waiting]:
        yield self._line
        for check in self._checks.values():
            yield check.waiting
            yield check.behind


def _wake(waiting: _Waiting) -> None:
    for waiter in waiting.values():
        if waiter is not None:
            waiter.has_slot()
