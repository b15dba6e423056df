"""Asks each bookie of a cluster in the best way that there is.

=====================  ==========================================================================================
bookie                 asked
=====================  ==========================================================================================
of this host           its status document, on the admin socket that it published
bkbox                  its status document, at the admin API's address that it published, with the operator's token
Apache's               its HTTP server for state and counters, if it published one
any of them            failing that, the size of its disks by the wire protocol, which shows that it answers
=====================  ==========================================================================================
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from bkbox import client as clients
from bkbox.api.admin import client as admin
from bkbox.api.admin.client import Address
from bkbox.api.admin.cluster_members import DOWN, Member, members_of
from bkbox.api.admin.remote import remote
from bkbox.api.admin.socket_path import admin_socket_path
from bkbox.api.cluster import java
from bkbox.api.cluster.java import Counters
from bkbox.api.cluster.rows import APACHE, Report, report_of
from bkbox.api.cluster.watch import IN_FLIGHT_MAX, ClusterWatch
from bkbox.base.ids import BookieId
from bkbox.client.client import Client
from bkbox.client.connection.pool import DiskSpace
from bkbox.client.options import ClientOptions
from bkbox.client.placement.topology import NoTopology, Topology, topology_of
from bkbox.config.schema import Config
from bkbox.errors import (
    BkboxError,
    BookieNotRunningError,
    BookieUnresponsiveError,
    NoSuchRouteError,
    OperatorError,
    PeerError,
)

T = TypeVar("T")

_STEP_S = 2.0
"""Time-out of each step of a request: a bookie that is back is asked again soon after it."""
_WIRE_S = 1.0


@dataclass(frozen=True, slots=True)
class Reach:
    """Access to the admin APIs of other hosts: one token for all."""

    token_file: Path
    plain_text: bool

    def address(self, url: str) -> Address:
        """Raises OperatorError, ConfigError."""
        return remote(url, self.token_file, plain_text=self.plain_text)


class Asker:
    """See ``watch_cluster``. ``own``: a bookie whose address is given; ``reach``: None without a token; ``client``:
    None if the metadata store is not known, so that bookies are not reached by the wire protocol."""

    def __init__(
        self,
        own: tuple[str, Address] | None,
        reach: Reach | None,
        client: Client | None,
        clock: Callable[[], float],
    ) -> None:
        self.own = own
        self._reach = reach
        self._client = client
        self._clock = clock
        self._threads = ThreadPoolExecutor(IN_FLIGHT_MAX, "cluster")
        self._counters: dict[str, Counters] = {}
        self.reached: dict[str, Address] = {}
        """Where each bookie that gave its status was reached last."""

    async def ask(self, member: Member) -> Report | None:
        """Raises BkboxError."""
        if self.own is not None and self.own[0] == member.id:
            return await self._status(member, self.own[1])
        is_ours = (member.version or "").startswith("bkbox")
        why = "it publishes no admin API (http_listen)"
        if not is_ours and member.socket is None:
            why = "it has no HTTP server (httpServerEnabled): no more is known than its space"
        if member.socket is not None:
            try:
                return await self._status(member, Path(member.socket))
            except BookieNotRunningError:
                why = f"nothing answers on {member.socket} of this host, and {why}"
            except (BookieUnresponsiveError, OperatorError) as error:
                why = str(error)
            except BkboxError:
                pass  # another bookie's: every host may have one at this path
        if member.mode == DOWN:
            why = f"it is not registered in the metadata store; {why}"
            if member.address is None:
                raise BookieNotRunningError(why)
        if member.admin is None:
            found = await self._by_wire(member, why)
            return found if is_ours else replace(found, verdict="ok")
        if not is_ours:
            return await self._java(member, member.admin)
        if self._reach is None:
            return await self._by_wire(member, "its admin API needs a token: give --token-file")
        try:
            return await self._status(member, self._reach.address(member.admin))
        except BkboxError as error:
            return await self._by_wire(member, str(error))

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _status(self, member: Member, address: Address) -> Report:
        status = await self._blocking(admin.fetch_status, address, _STEP_S)
        if status.bookie_id != member.id:
            raise PeerError(f"bookie {status.bookie_id} answers on {address}")
        self.reached[member.id] = address
        return report_of(status)

    async def _java(self, member: Member, url: str) -> Report:
        space = await self._by_wire(member, "")
        try:
            address = remote(url, None)
            state = java.state_of(
                await self._blocking(admin.ask, address, "GET", java.STATE_URL, None, _STEP_S)
            )
        except BkboxError as error:
            return replace(space, problems=(f"its HTTP server: {error}",), verdict="warn")
        rates = Report()
        with contextlib.suppress(NoSuchRouteError, PeerError):  # without a Prometheus page
            page = await self._blocking(
                admin.ask_text, address, "GET", java.METRICS_URL, None, _STEP_S
            )
            now = java.counters_of(page.decode(errors="replace"), self._clock())
            if now is not None:
                rates = java.rates(self._counters.get(member.id), now)
                self._counters[member.id] = now
        return replace(
            rates,
            state=state,
            total_bytes=space.total_bytes,
            free_bytes=space.free_bytes,
            version=APACHE,
        )

    async def _by_wire(self, member: Member, why: str) -> Report:
        """The size of its disks. ``why``: what prevents a full report, "" for nothing. Raises BookieNotRunningError."""
        if self._client is None:
            raise BookieNotRunningError(why or "it is not reached from here")
        found = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_WIRE_S):
                found = await self._client.pool.bookie_info(BookieId(member.id))
        if not isinstance(found, DiskSpace):
            detail = "no answer in time" if found is None else getattr(found, "value", found)
            raise BookieNotRunningError(
                f"{why}; {detail}" if why else f"it does not answer: {detail}"
            )
        return Report(
            verdict="warn" if why else "ok",
            problems=(why,) if why else (),
            total_bytes=found.total_bytes,
            free_bytes=found.free_bytes,
            version=member.version or APACHE,
        )

    async def _blocking(self, call: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, *arguments)


@asynccontextmanager
async def watch_cluster(
    metadata: str,
    config: Config | None,
    reach: Reach | None,
    clock: Callable[[], float],
) -> AsyncIterator[tuple[ClusterWatch, Asker]]:
    """The cluster of a metadata store; ``config``: of one of its bookies, which is reached on its socket. Raises
    MetadataUnavailableError, MetadataError, ConfigError."""
    async with clients.connect(metadata, backoff_max_s=1.0) as client:
        topology = _racks(config, client)
        own = None if config is None else (config.bookie_id, admin_socket_path(config))
        asker = Asker(own, reach, client, clock)
        watch = ClusterWatch(partial(members_of, client.store, topology), asker.ask, clock)
        try:
            yield watch, asker
        finally:
            await watch.close()
            asker.close()


@asynccontextmanager
async def watch_from(
    address: Address,
    reach: Reach,
    clock: Callable[[], float],
) -> AsyncIterator[tuple[ClusterWatch, Asker]]:
    """The cluster as a bookie at this address of its admin API lists it."""

    async def listed() -> Sequence[Member]:
        if asker.own is None:  # it may be reached by another way than the one that it publishes
            found = await asyncio.to_thread(admin.fetch_status, address)
            asker.own = found.bookie_id, address
        return await asyncio.to_thread(admin.bookies, address)

    asker = Asker(None, reach, None, clock)
    watch = ClusterWatch(listed, asker.ask, clock)
    try:
        yield watch, asker
    finally:
        await watch.close()
        asker.close()


def _racks(config: Config | None, client: Client) -> Topology:
    if config is None:
        return NoTopology()
    script = None if config.topology_script is None else str(config.topology_script)
    options = ClientOptions(topology_script=script, rack_map=config.rack_map or None)
    return topology_of(options, client.store)
