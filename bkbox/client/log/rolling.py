"""Prepares the next ledger of a log's writer and closes the one before, both in the background.

A ledger is added only when the one before the present one is closed: a new writer fences the two that may be open. If
the metadata store cannot be reached the present ledger grows on, and rolling is retried.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from bkbox.base.backoff import JITTER_AROUND, jittered
from bkbox.client.client import Client
from bkbox.client.ledger.writer import LedgerWriter
from bkbox.client.log.log_open import add, create_next, discard
from bkbox.client.log.options import LogOptions
from bkbox.client.log.stored import StoredList
from bkbox.errors import (
    BkboxError,
    HandleClosedError,
    LedgerClosedError,
    LedgerError,
    LedgerFencedError,
    MetadataError,
    NoSuchLedgerError,
    NoSuchLogError,
    NotLeaderError,
)

log = logging.getLogger(__name__)

RETRY_S = 1.0
"""Mean pause, in seconds, before a retry."""


class Rolling:
    """The rolling of one writer of a log. ``rolled`` is called when ``next`` is ready, ``failed`` with the error that
    ends the writer.
    """

    def __init__(
        self,
        client: Client,
        stored: StoredList,
        options: LogOptions,
        epoch: int,
        rolled: Callable[[], None],
        failed: Callable[[BaseException], object],
    ) -> None:
        self.next: LedgerWriter | None = None
        self._client = client
        self._stored = stored
        self._options = options
        self._epoch = epoch
        self._rolled = rolled
        self._failed = failed
        self._preparing: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    def prepare(self) -> None:
        """Start to create the next ledger, unless that is in flight."""
        if self._preparing is None and self.next is None:
            self._preparing = asyncio.get_running_loop().create_task(self._prepare())

    def detach(self) -> LedgerWriter:
        """The next ledger, which is the present one from now on."""
        assert self.next is not None
        ledger, self.next = self.next, None
        return ledger

    def close_later(self, ledger: LedgerWriter) -> None:
        """Close, in the background, a ledger in which everything is acknowledged."""
        assert self._closing is None or self._closing.done()
        self._closing = asyncio.get_running_loop().create_task(self._close(ledger))

    async def finish(self) -> None:
        """Finish: background work is completed or abandoned. Raises MetadataError."""
        if self._preparing is not None:
            self._preparing.cancel()
            await asyncio.wait([self._preparing])
        if self._closing is not None:
            await self._closing
        if self.next is not None:
            await self.detach().close()

    async def abort(self) -> None:
        """Stop, and leave everything as it is."""
        tasks = [task for task in (self._preparing, self._closing) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self.next is not None:
            await self.detach().abort()

    async def _prepare(self) -> None:
        writer: LedgerWriter | None = None
        try:
            while self.next is None:
                try:
                    if self._closing is not None:
                        await asyncio.shield(self._closing)
                    if writer is None:
                        present = (await self._stored.read()).value
                        writer = await create_next(
                            self._client, self._stored, present, self._options
                        )
                    await add(self._stored, self._epoch, writer.ledger_id)
                except (NotLeaderError, NoSuchLogError):
                    raise
                except (MetadataError, LedgerError) as error:
                    log.warning(
                        "log %s cannot go on in another ledger yet: %s", self._stored.name, error
                    )
                    await asyncio.sleep(jittered(RETRY_S, self._client.rng, JITTER_AROUND))
                else:
                    self.next, writer = writer, None
            self._rolled()
        except asyncio.CancelledError:
            if writer is not None:
                self._client.run_in_background(discard(self._client, self._stored, writer))
            raise
        except Exception as error:
            self._failed(error)
            if writer is not None:
                await self._release(writer)
            if not isinstance(error, BkboxError):
                raise
        finally:
            self._preparing = None

    async def _release(self, writer: LedgerWriter) -> None:
        """Abandon a ledger that was not added, because this writer was too late."""
        try:
            await discard(self._client, self._stored, writer)
        except BkboxError as error:
            name, number = self._stored.name, writer.ledger_id
            log.warning("log %s: ledger %d stays without use: %s", name, number, error)

    async def _close(self, ledger: LedgerWriter) -> None:
        try:
            while not await self._is_closed(ledger):
                await asyncio.sleep(jittered(RETRY_S, self._client.rng, JITTER_AROUND))
        except HandleClosedError:
            pass  # the client was closed
        finally:
            await ledger.abort()

    async def _is_closed(self, ledger: LedgerWriter) -> bool:
        """True if the ledger is closed, or was deleted with the log."""
        try:
            try:
                await ledger.close()
            except (LedgerFencedError, LedgerClosedError):
                # Another client recovers it. Everything in it was acknowledged, so it ends where it would have.
                await self._client.recover(ledger.ledger_id, self._options.password)
        except NoSuchLedgerError:
            return True
        except (MetadataError, LedgerError) as error:
            name, number = self._stored.name, ledger.ledger_id
            log.warning("log %s: ledger %d is not closed yet: %s", name, number, error)
            return False
        return True
