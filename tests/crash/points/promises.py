"""What a bookie has promised by the time of a crash, and whether one that was started again keeps it.

A scenario says what it asks for before it does (``try``) and what it was told (``ack``), line by line, to a descriptor
that is no file of the watched folder; shim.c puts the lines into its log, between the calls. ``Promises`` reads them:

=========================  ==============================================================================
line                       meaning of its ``ack``
=========================  ==============================================================================
add LEDGER ENTRY           the entry was acknowledged, after what ``ack_after`` demands
defer LEDGER ENTRY         the same with a deferred sync: promised to a lost host with the next force
force                      everything that was deferred is durable
fence LEDGER               the ledger is fenced
rest                       all disks are at rest: what is on them is durable, and says so
limbo LEDGER               the ledger is in limbo; and fenced
clear LEDGER               it is not in limbo any more
lac LEDGER LAC             the explicit LAC was taken
begin                      the disks' dirty markers are there
stop                       the stop was clean: nothing can be missing
init                       the disks are prepared
record TEXT                the metadata store, which no crash here touches, has this record of the disks
=========================  ==============================================================================
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from random import Random

Note = Callable[..., None]
"""Called with ``try`` or ``ack`` and the words of a line."""

Entry = tuple[int, int]


@cache
def payload(ledger: int, entry: int) -> bytes:
    """The one content of an entry: every reader can tell it."""
    rng = Random(f"{ledger}-{entry}")
    return rng.randbytes(rng.choice((0, 40, 300, 700, 1500)))


@dataclass(slots=True)
class Promises:
    """See above. ``tried`` holds all entries that were ever sent; ``active``: ledgers with adds since the disks last
    rested.
    """

    tried: set[Entry] = field(default_factory=set)
    acked: set[Entry] = field(default_factory=set)
    deferred: set[Entry] = field(default_factory=set)
    fenced: set[int] = field(default_factory=set)
    may_be_fenced: set[int] = field(default_factory=set)
    limbo: set[int] = field(default_factory=set)
    may_be_limbo: set[int] = field(default_factory=set)
    lacs: dict[int, int] = field(default_factory=dict)
    tried_lacs: dict[int, int] = field(default_factory=dict)
    active: set[int] = field(default_factory=set)
    prepared: bool = False
    in_use: bool = False
    stopping: bool = False
    record: str = ""

    def read(self, line: bytes) -> None:
        """Take in one line."""
        step, what, *numbers = json.loads(line)
        getattr(self, f"_{step}_{what}")(*numbers)

    def note(self, *words: object) -> None:
        """As ``read``, for those who are in the same process."""
        self.read(json.dumps(words).encode())

    def known(self) -> set[int]:
        """Ledgers of which something was acknowledged: they have their keys."""
        ledgers = {ledger for ledger, _entry in self.acked | self.deferred}
        return ledgers | self.fenced | set(self.lacs)

    def _try_add(self, ledger: int, entry: int) -> None:
        self.tried.add((ledger, entry))
        self.active.add(ledger)

    _try_defer = _try_add

    def _ack_add(self, ledger: int, entry: int) -> None:
        self.acked.add((ledger, entry))

    def _ack_defer(self, ledger: int, entry: int) -> None:
        self.deferred.add((ledger, entry))

    def _try_rest(self) -> None: ...

    def _ack_rest(self) -> None:
        self.acked |= self.deferred
        self.deferred, self.active = set(), set()

    def _ack_record(self, record: str) -> None:
        self.record = record

    def _try_force(self) -> None: ...

    def _ack_force(self) -> None:
        self.acked |= self.deferred
        self.deferred = set()

    def _try_fence(self, ledger: int) -> None:
        self.may_be_fenced.add(ledger)

    def _ack_fence(self, ledger: int) -> None:
        self.fenced.add(ledger)

    def _try_limbo(self, ledger: int) -> None:
        self.may_be_limbo.add(ledger)
        self.may_be_fenced.add(ledger)

    def _ack_limbo(self, ledger: int) -> None:
        self.limbo.add(ledger)
        self.fenced.add(ledger)

    def _try_clear(self, ledger: int) -> None:
        self.limbo.discard(ledger)

    def _ack_clear(self, ledger: int) -> None:
        self.may_be_limbo.discard(ledger)

    def _try_lac(self, ledger: int, lac: int) -> None:
        self.tried_lacs[ledger] = max(lac, self.tried_lacs.get(ledger, -1))

    def _ack_lac(self, ledger: int, lac: int) -> None:
        self.lacs[ledger] = max(lac, self.lacs.get(ledger, -1))

    def _try_init(self) -> None:
        self.prepared = False

    def _ack_init(self) -> None:
        self.prepared = True

    def _try_begin(self) -> None:
        self.stopping = False

    def _ack_begin(self) -> None:
        self.in_use, self.prepared = True, True

    def _try_stop(self) -> None:
        self.stopping = True

    def _ack_stop(self) -> None:
        self.in_use = self.stopping = False
        self._ack_rest()
