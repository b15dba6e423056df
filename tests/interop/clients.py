"""What a scenario asks of a client, whoever's it is: Apache's, in Java, or bkbox's.

Calls block, and may be made from several threads. Payloads are bytes, ids are ints; -1 is no entry.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

Entries = list[tuple[int, bytes]]
"""Entry ids with their payloads."""

DIGESTS = ["CRC32", "CRC32C", "MAC", "DUMMY"]
"""Digest types by the names of BookKeeper's API."""


class Refused(Exception):  # noqa: N818
    """An operation's outcome is an error. ``kind`` is one of the words below, or else the name that
    the client's own error has."""

    FENCED = "fenced"
    CLOSED = "closed"
    UNAUTHORIZED = "unauthorized"
    NO_LEDGER = "no such ledger"
    NO_ENTRY = "no such entry"
    PAST_END = "past the end"
    NOT_ENOUGH_BOOKIES = "not enough bookies"
    LEDGER_THERE = "such a ledger is there"
    ENTRY_THERE = "such an entry was appended before"

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


@dataclass(frozen=True, kw_only=True)
class Metadata:
    """Ledger metadata, as far as every client shows it."""

    ledger: int
    e: int
    wq: int
    aq: int
    state: str
    last: int
    length: int
    digest: str
    password: bytes
    custom: dict[str, bytes] = field(default_factory=dict)
    ensembles: dict[int, list[str]]

    @property
    def members(self) -> set[str]:
        """Every bookie of every ensemble."""
        return {bookie for ensemble in self.ensembles.values() for bookie in ensemble}

    def holders(self, entry: int) -> list[str]:
        """The bookies that have to have the entry."""
        ensemble = self.ensembles[max(first for first in self.ensembles if first <= entry)]
        return [ensemble[(entry + copy) % self.e] for copy in range(self.wq)]


class Writer(ABC):
    """The handle of a ledger's writer."""

    ledger: int

    @abstractmethod
    def append(self, payload: bytes) -> int:
        """Append one entry and wait for it; its id."""

    @abstractmethod
    def append_async(self, count: int, size: int, *, first: int = 0, window: int = 1000) -> int:
        """Append the payloads ``pattern(first…, size)``, up to ``window`` at a time, and wait for all;
        the LAC afterwards. Ids must come in the order of the calls."""

    @abstractmethod
    def write(self, entry: int, payload: bytes) -> int:
        """Append an entry with an id of the caller's own to a ledger created with ``adv``, and wait for it; its id."""

    @abstractmethod
    def lac(self) -> int:
        """The last entry that is confirmed, as far as this writer knows."""

    @abstractmethod
    def force(self) -> int:
        """Make durable what was acknowledged; the LAC afterwards."""

    @abstractmethod
    def close(self) -> None:
        """Close the ledger."""


class Reader(ABC):
    """The handle of a ledger's reader."""

    ledger: int

    @abstractmethod
    def lac(self) -> int:
        """The end of a closed ledger, or the LAC that this handle has heard of."""

    @abstractmethod
    def read_lac(self) -> int:
        """Ask the bookies for the LAC."""

    @abstractmethod
    def try_read_lac(self) -> int:
        """Ask the bookies for the LAC, without insisting on a quorum of answers."""

    @abstractmethod
    def explicit_lac(self) -> int:
        """Ask the bookies for the LAC, also for what the writer told them beside its entries."""

    @abstractmethod
    def read(self, first: int, last: int) -> Entries:
        """Confirmed entries, both ends included."""

    @abstractmethod
    def read_unconfirmed(self, first: int, last: int) -> Entries:
        """Entries whether confirmed or not."""

    @abstractmethod
    def batch_read(self, first: int, count: int, size: int) -> Entries:
        """At least one entry from ``first`` on, at most ``count`` and about ``size`` bytes."""

    @abstractmethod
    def long_poll(self, entry: int, timeout_ms: int, *, parallel: bool) -> tuple[int, Entries]:
        """Wait until this entry is confirmed or the time is over: the LAC, and the entry if it is."""


class Client(ABC):
    """A client of one cluster."""

    name: str
    """Who speaks, and how: ``java-v3``."""
    protocol: str
    """``v2`` or ``v3``."""

    @abstractmethod
    def create(
        self,
        e: int = 3,
        wq: int = 3,
        aq: int = 2,
        *,
        digest: str = "CRC32C",
        password: bytes = b"",
        custom: Mapping[str, bytes] | None = None,
        deferred_sync: bool = False,
        adv: bool = False,
        ledger: int | None = None,
    ) -> Writer:
        """``adv``: the caller gives entries their ids (``Writer.write``), and the ledger too if it likes."""

    @abstractmethod
    def open(
        self,
        ledger: int,
        *,
        digest: str = "CRC32C",
        password: bytes = b"",
        recovery: bool = True,
    ) -> Reader: ...

    @abstractmethod
    def recover(
        self, ledger: int, times: int, *, digest: str = "CRC32C", password: bytes = b""
    ) -> list[int]:
        """Open with recovery several times at once: the ends found."""

    @abstractmethod
    def delete(self, ledger: int) -> None: ...

    @abstractmethod
    def ledgers(self) -> list[int]: ...

    @abstractmethod
    def metadata(self, ledger: int) -> Metadata: ...

    @abstractmethod
    def bookie_info(self) -> dict[str, tuple[int, int]]:
        """Free and total bytes of each bookie."""

    @abstractmethod
    def entries_of(self, bookie: str, ledger: int, end: int) -> list[int]:
        """The entries below ``end`` that the bookie says it has."""

    @abstractmethod
    def another(self, *, hangs_alone: bool = False, **settings: object) -> Client:
        """A client like this one. ``hangs_alone``: suspending it suspends nothing else. ``settings``:
        ``explicit_lac_ms``, how often its writers tell bookies their LAC."""

    @abstractmethod
    def suspend(self) -> None:
        """Hang: whatever is on its way stays so, and nothing else happens."""

    @abstractmethod
    def resume(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def pattern(number: int, size: int) -> bytes:
    """A payload that says which it is."""
    word = f"{number} ".encode()
    return (word * (size // len(word) + 1))[:size]


def numbered(payloads: Sequence[bytes], first: int = 0) -> Entries:
    return list(enumerate(payloads, first))
