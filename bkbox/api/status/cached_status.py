"""Slow parts of the status document, cached: the cookies, autorecovery in the cluster, and its ended ledgers.

The cookies are compared with the configuration file as it is now, not with the one that this start has read: the
question is if the next start would refuse.

A status request must not wait long for an unavailable metadata store or a disk that hangs. So these parts are inspected
in the background, when a request comes and the last inspection is some time ago; the document has the last result.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from bkbox.api.admin.status import Autorecovery, Cookies, Losses
from bkbox.api.status import cookie_report
from bkbox.api.status.config_file import ConfigFile
from bkbox.api.status.ended_ledgers import EndedLedgers
from bkbox.base.ids import BookieId
from bkbox.base.text import error_text, fault_text
from bkbox.errors import BkboxError
from bkbox.supervisor.boot import cookies
from bkbox.supervisor.boot.other_writers import other_writers

if TYPE_CHECKING:
    from bkbox.config.schema import Config
    from bkbox.metadata.base import MetadataStore
    from bkbox.metadata.underreplication import UnderReplication
    from bkbox.storage.files import Files

_log = logging.getLogger(__name__)

_AGAIN_S = 15.0
_WAIT_S = 1.0
"""Seconds that the request that begins an inspection waits for it: enough if nothing is wrong."""

_COUNTED_MAX = 10_000
"""Maximum number of under-replicated ledgers that are counted: a cluster in need may have more than it is good to list
every few seconds."""


class CachedStatus:
    """The cached parts of one bookie. ``config`` gives the configuration that it runs with now, ``file`` the one that
    the next start will read."""

    def __init__(
        self,
        config: Callable[[], Config],
        file: ConfigFile,
        store: MetadataStore,
        files: Files,
    ) -> None:
        self._config = config
        self._file = file
        self._store = store
        self._ended = EndedLedgers(store)
        self._files = files
        self._refreshing: asyncio.Task[None] | None = None
        self._refreshed_s = -_AGAIN_S
        self._config_seen: Config | None = None
        self._other_writers: list[str] = []
        self.cookies = Cookies()
        self.autorecovery = Autorecovery()
        self.losses = Losses()

    async def refresh(self) -> None:
        """Begins an inspection if one is due, and waits for it briefly. Raises nothing."""
        now = time.monotonic()
        config = self._config()
        has_changed = self._file.has_changed or config is not self._config_seen
        if self._refreshing is None and (has_changed or now - self._refreshed_s >= _AGAIN_S):
            self._refreshed_s, self._config_seen = now, config
            self._refreshing = asyncio.ensure_future(self._refresh())
            await asyncio.wait((self._refreshing,), timeout=_WAIT_S)

    @property
    def config_problem(self) -> str:
        """The reason why the next start would refuse the configuration file; empty if there is none."""
        return self._file.problem or "; ".join(self._other_writers)

    async def close(self) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)

    async def _refresh(self) -> None:
        try:
            await asyncio.gather(
                _noting(self._compare(), self._cookies_failed),
                _noting(self._ask_cluster(), self._cluster_failed),
                _noting(self._list_ended(), self._losses_failed),
            )
        finally:
            self._refreshing = None

    async def _compare(self) -> None:
        running = self._config()
        config = self._file.config() or running
        self._other_writers = await asyncio.to_thread(other_writers, config, os.geteuid())
        if config.metadata != running.metadata:
            self.cookies = Cookies(
                problem=f"{config.path} names another metadata store ({config.metadata}): whether it has the cookie of "
                "this bookie is only seen when the bookie starts",
                checked_ms=_now_ms(),
            )
            return
        instance_id = await self._store.instance_id()
        stored = await self._store.read_cookie(BookieId(config.bookie_id))
        evidence = await asyncio.to_thread(
            cookies.inspect_disks, config, self._files, instance_id, stored
        )
        self.cookies = cookie_report.view_of(evidence, _now_ms())

    async def _ask_cluster(self) -> None:
        tree = self._store.under_replication
        registered = (await self._store.bookies()).values()
        self.autorecovery = Autorecovery(
            enabled=await tree.enabled(),
            auditor=await tree.auditor(),
            under_replicated=await _count(tree),
            writable_bookies=sum(not bookie.read_only for bookie in registered),
            read_only_bookies=sum(bookie.read_only for bookie in registered),
            checked_ms=_now_ms(),
        )

    async def _list_ended(self) -> None:
        self.losses = replace(await self._ended.inspect(), checked_ms=_now_ms())

    def _cookies_failed(self, problem: str) -> None:
        self.cookies = replace(self.cookies, problem=problem)

    def _cluster_failed(self, problem: str) -> None:
        self.autorecovery = replace(self.autorecovery, problem=problem)

    def _losses_failed(self, problem: str) -> None:
        self.losses = replace(self.losses, problem=problem)


async def _noting(refresh: Awaitable[None], failed: Callable[[str], None]) -> None:
    try:
        await refresh
    except (BkboxError, OSError) as error:
        failed(error_text(error))
    except Exception as error:  # noqa: BLE001 - what was seen before must not pass for new
        _log.exception("a part of the status")
        failed(fault_text(error))


async def _count(tree: UnderReplication) -> int:
    count = 0
    async for _ledger in tree.ledgers():
        count += 1
        if count == _COUNTED_MAX:
            break
    return count


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
