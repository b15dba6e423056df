"""Decommission of a bookie in parallel: every task of an engine copies some of its ledgers.

The checks beforehand and the final scan of all ledgers are in bkbox/repair/decommission.py.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from bkbox import metadata as stores
from bkbox.audit.execute import Outcome
from bkbox.audit.job import Chunk
from bkbox.base.ids import BookieId, LedgerId
from bkbox.client.client import Client
from bkbox.client.options import ClientOptions
from bkbox.errors import BkboxError, LeftToWriterError, MetadataError, NoSuchLedgerError
from bkbox.metadata.base import MetadataStore
from bkbox.repair.bounded_gather import bounded_gather
from bkbox.repair.job_run import JobRun
from bkbox.repair.rate_limits import RateLimits
from bkbox.repair.replication.ledger_replicator import LedgerReplicator
from bkbox.repair.replication.standalone import METADATA_CALLS_PER_SECOND, host_name, wall_ms

_LEDGERS_AT_ONCE = 8
_GRACE_S = 30.0


@dataclass(frozen=True)
class DecommissionJob:
    """Copies the ledgers of one chunk. ``rate``: bytes a second between bookies for one chunk, 0 for no rate limit."""

    uri: str
    bookie: BookieId
    rate: int = 0
    grace_s: float = _GRACE_S
    client: Mapping[str, Any] = field(default_factory=dict)

    async def run(self, chunk: Chunk) -> list[Outcome]:
        """One outcome for each ledger that named the bookie. Raises MetadataUnavailableError."""
        rng = random.Random()  # noqa: S311 placement and jitter
        pacer = RateLimits(0, self.rate, METADATA_CALLS_PER_SECOND)
        gate = asyncio.Lock()
        options = ClientOptions(**self.client)
        async with await stores.connect(self.uri) as store, Client(store, options, rng) as client:
            replicator = LedgerReplicator(
                store, client, None, self.grace_s, wall_ms, time.monotonic
            )

            async def one(ledger: LedgerId) -> Outcome | None:
                try:
                    metadata = (await store.read_ledger(ledger)).value
                except NoSuchLedgerError:
                    return None
                if self.bookie not in metadata.bookies():
                    return None
                work = JobRun(os.getpid(), pacer, gate, time.monotonic)
                why = await self._ledger(store, replicator, ledger, work)
                done = work.report()["done"]
                return Outcome(ledger, not why, done["entries"], done["bytes"], why)

            ids = (LedgerId(each) for some in chunk.ledgers for each in some)
            found = await bounded_gather(ids, one, _LEDGERS_AT_ONCE)
            return [each for each in found if each is not None]

    async def _ledger(
        self, store: MetadataStore, replicator: LedgerReplicator, ledger: LedgerId, work: JobRun
    ) -> str:
        tree = store.under_replication
        try:
            task = await tree.claim(ledger, [self.bookie], wall_ms(), host_name())
            if task is None:
                return "another worker is at it"
            try:
                for is_last in (False, True):
                    try:
                        drained = frozenset({self.bookie})
                        await replicator.make_whole(
                            ledger, task.mark.missing.replicas, work, drained
                        )
                        break
                    except LeftToWriterError as error:
                        if is_last:
                            raise
                        await asyncio.sleep(error.wait_s)
                await tree.finish(task)
            finally:
                with suppress(MetadataError):  # the lock ends with the session in that case
                    await tree.release(task)
        except MetadataError as error:
            if error.may_have_taken_effect:
                raise
            return str(error)
        except BkboxError as error:
            return str(error)
        return ""
