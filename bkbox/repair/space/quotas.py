"""Watches the bytes that each owner has on the disks of this bookie, where the configuration gives owners quotas.

A scan asks each disk for the bytes of its ledgers, and the metadata store which of these ledgers exist. For ledgers
that were not seen before it reads the owner, which does not change. A deleted ledger is not counted, though it may be
on the disks until it is collected; nor is one that no metadata name. A disk that does not respond counts as it did
the last time.

The result goes to the supervisor: the bytes of each owner, and the ledgers of the owners that reached their quota.
While the metadata store is unavailable the last report holds. It is no job: it has no end, and it does not queue with
jobs, whose budgets may be small; but it calls the metadata store no more often than they may.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from bkbox.base.ids import LedgerId
from bkbox.base.text import error_text, quoted
from bkbox.base.token_bucket import TokenBucket
from bkbox.errors import BkboxError, BugError, MetadataError, MetadataUnavailableError
from bkbox.ipc.async_channel import AsyncChannel
from bkbox.ipc.messages.items import LEDGER_ID_ITEM
from bkbox.ipc.messages.message import Message, Page
from bkbox.ipc.messages.repair import OVER_QUOTA_PAGE, OverQuota, QuotaUse
from bkbox.ipc.messages.space import ListBytes
from bkbox.repair.context import Environment
from bkbox.security.quotas import Quotas, Use
from bkbox.wire.metadata.owner import owner_of

log = logging.getLogger(__name__)

_ASK_TIMEOUT_S = 30.0
_READ_AT_ONCE = 16
_RECHECK_S = 1.0
"""Seconds after which the budget is checked again: it may have been changed."""
_SHOWN_OWNERS = 100
_SHOWN_CHARACTERS = 64
"""Bounds on the report: owners' names come from writers of metadata, so there may be many, and long ones."""


@dataclass(slots=True)
class _Owned:
    """The ledgers of one owner on this bookie."""

    bytes: int = 0
    ledgers: array[int] = field(default_factory=lambda: array("Q"))


class QuotaWatch:
    """``tell`` sends messages to the supervisor."""

    def __init__(self, environment: Environment, tell: Callable[[Message], None]) -> None:
        self._environment = environment
        self._tell = tell
        self._calls = TokenBucket(environment.order.metadata_calls_per_second or None)
        self._quotas = Quotas(environment.order.quotas)
        self._interval_s = environment.order.quota_interval_s
        self._configured = asyncio.Event()
        self._on_disk: dict[str, array[int]] = {}
        """By disk, as last reported: ledger ids and bytes, alternating."""
        self._owners: dict[int, str] = {}
        self._last_sent: list[bytes] | None = None
        self._over: set[str] = set()
        self._problem = ""

    def configure(self, values: Mapping[str, Any]) -> None:
        """Apply a changed configuration; the next scan starts at once."""
        self._quotas = Quotas(values["quotas"])
        self._interval_s = values["quota_interval_s"]
        rate = values["jobs_metadata_calls_per_second"]
        self._calls.set_rate(rate or None, self._environment.monotonic_s())
        self._last_sent = None
        self._configured.set()

    async def run(self) -> None:
        """Scan for ever."""
        while True:
            self._configured.clear()
            if self._quotas:
                await self._measure()
            with suppress(TimeoutError):
                wait_s = self._interval_s if self._quotas else None
                await asyncio.wait_for(self._configured.wait(), wait_s)

    async def _measure(self) -> None:
        try:
            owned = await self._by_owner(await self._ledger_bytes())
        except (BkboxError, TimeoutError) as error:
            problem = error_text(error)
            if problem != self._problem:
                log.warning("which owners are over quota is as it was: %s", problem)
            self._problem = problem
            self._tell(QuotaUse(problem=problem[:1000]))
            return
        self._problem = ""
        self._send(owned)

    # ---- what is here -------------------------------------------------------------------------------

    async def _ledger_bytes(self) -> dict[int, int]:
        """Bytes of each ledger on the disks."""
        reported = set()
        for disk, channel in list(self._environment.disks.items()):
            with suppress(BkboxError, TimeoutError):
                self._on_disk[disk] = await self._list(channel)
                reported.add(disk)
        sizes: dict[int, int] = {}
        for disk in sorted(self._on_disk, key=reported.__contains__):  # known values count now
            items = self._on_disk[disk]
            sizes.update(zip(items[::2], items[1::2], strict=True))
        return sizes

    async def _list(self, channel: AsyncChannel) -> array[int]:
        found = array("Q")
        while True:
            after = found[-2] if found else -1
            page = await channel.call(ListBytes(after=after), timeout_s=_ASK_TIMEOUT_S)
            if not isinstance(page, Page):
                raise BugError(f"ListBytes was answered {type(page).__name__}")
            found.frombytes(page.payload)
            if not page.more:
                return found

    # ---- whose it is --------------------------------------------------------------------------------

    async def _by_owner(self, sizes: Mapping[int, int]) -> dict[str, _Owned]:
        """Groups the ledgers by owner. MetadataError: the owners cannot be determined."""
        owned: dict[str, _Owned] = {}
        owners: dict[int, str] = {}
        async for page in self._environment.store.ledger_ranges():
            await self._pay(1)
            here = [ledger for ledger in page if ledger in sizes]
            await self._read_owners([each for each in here if each not in self._owners])
            for ledger in here:
                owner = self._owners.get(ledger)
                if owner is not None:
                    owners[ledger] = owner
                    its = owned.setdefault(owner, _Owned())
                    its.bytes += sizes[ledger]
                    its.ledgers.append(ledger)
        self._owners = owners
        return owned

    async def _read_owners(self, ledgers: Sequence[LedgerId]) -> None:
        for start in range(0, len(ledgers), _READ_AT_ONCE):
            some = ledgers[start : start + _READ_AT_ONCE]
            await self._pay(len(some))
            await asyncio.gather(*map(self._read_owner, some))

    async def _pay(self, calls: int) -> None:
        """Wait until the budget allows this many calls."""
        while (wait_s := self._calls.wait_s(self._environment.monotonic_s())) > 0:
            await asyncio.sleep(min(wait_s, _RECHECK_S))
        self._calls.spend(calls, self._environment.monotonic_s())

    async def _read_owner(self, ledger: LedgerId) -> None:
        try:
            found = await self._environment.store.read_ledger(ledger)
        except MetadataUnavailableError:
            raise
        except MetadataError as error:  # deleted a moment ago, or unreadable
            log.debug("ledger %d has no owner: %s", ledger, error)
        else:
            self._owners[ledger] = sys.intern(owner_of(found.value))

    # ---- report ------------------------------------------------------------------------------------

    def _send(self, owned: Mapping[str, _Owned]) -> None:
        uses = self._quotas.evaluate({owner: its.bytes for owner, its in owned.items()})
        over = [use for use in uses if use.is_over]
        pages = _pages(owned[use.owner].ledgers for use in over)
        if pages != self._last_sent:
            for number, page in enumerate(pages, start=1):
                self._tell(OverQuota(more=number < len(pages), payload=page))
            self._last_sent = pages
        self._tell(
            QuotaUse(
                owners=[
                    [_shown(use.owner), use.bytes, use.bytes_max, use.is_over]
                    for use in uses[:_SHOWN_OWNERS]
                ],
                unlisted_owners=len(uses[_SHOWN_OWNERS:]),
                checked_ms=self._environment.wall_ms(),
            )
        )
        self._log(over)

    def _log(self, over: Sequence[Use]) -> None:
        for use in over:
            if use.owner not in self._over:
                log.warning(
                    "owner %s has %d bytes here and may have %d: adds to its ledgers are refused",
                    quoted(_shown(use.owner)),
                    use.bytes,
                    use.bytes_max,
                )
        for owner in self._over - {use.owner for use in over}:
            log.warning("owner %s may add again", quoted(_shown(owner)))
        self._over = {use.owner for use in over}


def _shown(owner: str) -> str:
    """A shortened name that stays unique among the owners."""
    if len(owner) <= _SHOWN_CHARACTERS:
        return owner
    return f"{owner[: _SHOWN_CHARACTERS - 9]}…{crc32(owner.encode()):08x}"


def _pages(parts: Iterable[Iterable[int]]) -> list[bytes]:
    """Ids of ledgers as payloads of OverQuota; at least one."""
    ledgers = [ledger for part in parts for ledger in part]
    return [
        b"".join(map(LEDGER_ID_ITEM.pack, ledgers[start : start + OVER_QUOTA_PAGE]))
        for start in range(0, max(len(ledgers), 1), OVER_QUOTA_PAGE)
    ]
