"""Looks up in the metadata store the ledgers that clients are about to create here. The front-end asks for it where
clients have to authenticate (frontend/access/ledger_verification.py)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from bkbox.base.ids import LedgerId
from bkbox.base.logs.rate_limited import RateLimited
from bkbox.base.text import error_text
from bkbox.errors import BkboxError, MetadataUnavailableError, NoSuchLedgerError
from bkbox.frontend.access.ledger_verification import CHECKS_MAX, Finding
from bkbox.ipc.messages.frontend import CheckLedger, LedgerChecked
from bkbox.metadata.base import MetadataStore
from bkbox.wire.digest import master_key

_WAIT_S = 2.0
"""Time-out for the metadata store. The client's connection waits meanwhile."""

_REFUSED = "ledger %d is not created, and its clients are answered EIO: the metadata store %s: %s"


class LedgerChecks:
    """The checks of one front-end, which has at most CHECKS_MAX of them in flight. A front-end that was replaced gets
    no more responses."""

    def __init__(
        self, store: MetadataStore, tell: Callable[[LedgerChecked], None], limited_log: RateLimited
    ) -> None:
        self._store = store
        self._tell = tell
        self._limited_log = limited_log
        self._in_flight: set[asyncio.Task[None]] = set()

    def start(self, message: CheckLedger) -> None:
        """Start a check; the front-end is told the result."""
        if len(self._in_flight) < CHECKS_MAX:
            task = asyncio.ensure_future(self._check(message.ledger))
            self._in_flight.add(task)
            task.add_done_callback(self._in_flight.discard)

    async def _check(self, ledger: int) -> None:
        finding, key = await self._find(ledger)
        self._tell(LedgerChecked(ledger=ledger, finding=finding.value, payload=key))

    async def _find(self, ledger: int) -> tuple[Finding, bytes]:
        try:
            async with asyncio.timeout(_WAIT_S):
                found = await self._store.read_ledger(LedgerId(ledger), linearizable=True)
        except NoSuchLedgerError:
            return Finding.ABSENT, b""
        except (MetadataUnavailableError, TimeoutError) as error:
            reason = error_text(error) or f"{_WAIT_S:g} s have passed"
            self._warn("away", ledger, "does not answer", reason)
            return Finding.UNAVAILABLE, b""
        except BkboxError as error:
            self._warn("unknown", ledger, "has something that cannot be read", error_text(error))
            return Finding.UNKNOWN, b""
        password = found.value.password
        return Finding.THERE, b"" if password is None else master_key(password)

    def _warn(self, kind: str, ledger: int, what: str, why: str) -> None:
        self._limited_log.log(logging.WARNING, kind, _REFUSED, ledger, what, why)
