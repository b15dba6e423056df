"""The state that the steps of the demo share, and each step's line for the final table."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field

from bkbox.base.ids import BookieId, LedgerId
from bkbox.client import Client, connect
from bkbox.demo.cluster import Cluster
from bkbox.demo.output import Output
from bkbox.demo.source import Source, Stored
from bkbox.demo.writing import Writing
from bkbox.errors import DemoFailedError
from bkbox.protocol.events import RequestStatus

_NOT_YET = LedgerId(0)
_READS_AT_ONCE = 64


@dataclass(slots=True)
class DemoState:
    """The cluster, the output and the ledger of the demo."""

    cluster: Cluster
    output: Output
    source: Source
    rng: random.Random
    open: AsyncExitStack
    """Resources that one step leaves open for the next."""

    ledger: LedgerId = _NOT_YET
    """The ledger with the input."""

    writing: Writing | None = None
    """The writer, while the ledger is being written."""

    manifest: list[Stored] = field(default_factory=list)
    """The files in the ledger."""

    acknowledged: int = 0
    """The number of its entries acknowledged to the writer."""

    missed: range = range(0)
    """The acknowledged entries written while bookie 1 was dead."""

    def client(self) -> AbstractAsyncContextManager[Client]:
        """A client of the three bookies."""
        return connect(self.cluster.metadata, rng=self.rng)

    def sample(self, entries: range, size: int) -> list[int]:
        """At most this many of these entries, ascending."""
        return sorted(self.rng.sample(entries, min(size, len(entries))))


@dataclass(frozen=True, slots=True)
class StepResult:
    """A step's line in the table."""

    entries: int
    size: int
    what: str


@dataclass(frozen=True, slots=True)
class DemoReport:
    """One bookie's response about an entry."""

    answer: RequestStatus
    data: bytes | None


async def ask(
    client: Client, bookie: BookieId, ledger: LedgerId, entries: Sequence[int]
) -> list[DemoReport]:
    """Reads entries from one bookie alone, without fencing."""
    reports: list[DemoReport] = []
    for start in range(0, len(entries), _READS_AT_ONCE):
        some = entries[start : start + _READS_AT_ONCE]
        replies = await asyncio.gather(
            *(client.pool.read(bookie, ledger, entry, None) for entry in some)
        )
        for reply in replies:
            reports.append(
                DemoReport(reply.status, None if reply.entry is None else bytes(reply.entry))
            )
    return reports


def must(condition: bool, text: str) -> None:
    """Raises DemoFailedError unless ``condition``. ``text`` describes the failure."""
    if not condition:
        raise DemoFailedError(text)
