"""Injects each fault on real processes, files and connections, and undoes it.

A fault is an operation of the history from its beginning until its effect is undone. ``stop`` ends all active faults,
and no new one begins.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from functools import partial

from bkbox.errors import ChaosError
from proof.chaos import metadata
from proof.chaos.cluster import Bookie, Cluster
from proof.chaos.fault_budget import FaultBudget
from proof.chaos.health_poller import HealthPoller
from proof.chaos.history import History, Outcome
from proof.chaos.processes import ProcessHandle
from proof.chaos.proxy import State
from proof.chaos.schedule import Planned

_START_S = 90.0
_START_PAUSE_S = 1.5
_COOKIE_TRIES = 10
_BACK_S = 45.0
_BACK_POLL_S = 0.05
_WHOLE_S = 5.0
_POLLS = 3
_POLL_PAUSE_S = 0.4
_SQUEEZED_BYTES = 48 << 10


class Faults:
    """Executes a schedule on a cluster."""

    def __init__(
        self,
        cluster: Cluster,
        history: History,
        budget: FaultBudget,
        poller: HealthPoller,
        stop: asyncio.Event,
    ) -> None:
        self._cluster = cluster
        self._history = history
        self._budget = budget
        self._poller = poller
        self._stop = stop
        self.last = ""
        """The last fault, for progress output."""
        do: dict[str, Callable[[Bookie, Planned], Awaitable[None]]] = {
            "kill-supervisor": self._kill_supervisor,
            "kill-bookie": self._kill_bookie,
            "restart": self._restart,
            "pause-bookie": self._pause_bookie,
            "full-disk": self._fill_disk,
            "few-descriptors": self._use_up_descriptors,
            "lost-disk": self._lose_disks,
            "host-doubt": self._lose_trust,
        }
        for role in ("frontend", "worker", "repair"):
            do[f"kill-{role}"] = partial(self._kill_child, role)
            do[f"pause-{role}"] = partial(self._pause_child, role)
        do["pause-supervisor"] = self._pause_supervisor
        networks: dict[str, State] = {
            "cut-network": "cut",
            "silent-network": "silent",
            "one-way-network": "one-way",
        }
        for name, state in networks.items():
            do[name] = partial(self._turn_network, state)
        self._do = do

    async def follow(self, planned: Sequence[Planned], since: float) -> None:
        """Runs until the last fault is over, or all were stopped. ``since``: the time of the history from which the
        schedule counts. Raises ChaosError."""
        async with asyncio.TaskGroup() as group:
            for each in planned:
                await self._for(since + each.at - self._history.now)
                if self._stop.is_set():
                    return
                group.create_task(self._execute(each))

    async def _execute(self, planned: Planned) -> None:
        match planned.fault.name:
            case "kill-all":
                bookies = self._cluster.bookies
                await asyncio.gather(*(self._on(bookie, planned) for bookie in bookies))
            case "metadata-locked" | "metadata-away":
                await self._on_metadata(planned)
            case _:
                await self._on(self._cluster.bookies[planned.bookie], planned)

    async def _on(self, bookie: Bookie, planned: Planned) -> None:
        fault = planned.fault
        objection = self._budget.objection(fault, bookie.name)
        if not objection and bookie.pid is None:
            objection = "it is down"
        if objection:
            self._history.note("skipped", fault=fault.name, bookie=bookie.name, why=objection)
            return
        with self._budget.reserve(bookie.name, restarts=fault.restarts, pauses=fault.pauses):
            if fault.loses:
                self._budget.without_data.add(bookie.name)
            self.last = f"{fault.name} {bookie.name}"
            what = {"fault": fault.name, "bookie": bookie.name, "lasts_s": planned.lasts_s}
            operation = self._history.begin("fault", **what)
            began = time.monotonic()
            do = self._kill_bookie if fault.name == "kill-all" else self._do[fault.name]
            await do(bookie, planned)
            took = time.monotonic() - began
            back_s = round(max(0.0, took - planned.lasts_s), 3)
            self._history.end(operation, "ok", **what, back_s=back_s)
        if fault.loses:
            await self._until_whole(bookie)

    async def _for(self, seconds: float) -> None:
        """Waits; returns early once all faults have to end."""
        if seconds > 0:
            try:
                async with asyncio.timeout(seconds):
                    await self._stop.wait()
            except TimeoutError:
                return

    # ---- processes ------------------------------------------------------------------------------

    async def _kill_child(self, role: str, bookie: Bookie, planned: Planned) -> None:
        """The supervisor has to restart it."""
        found = bookie.children(role)
        if not found:
            return
        child = found[planned.disk % len(found)]
        handle = bookie.hold(child)
        if handle is None:
            return
        with handle:
            handle.send(signal.SIGKILL)
        deadline = time.monotonic() + _BACK_S
        while time.monotonic() < deadline and bookie.pid is not None:
            now = bookie.children(role)
            if any(each.name == child.name and each.pid != child.pid for each in now):
                return
            await asyncio.sleep(_BACK_POLL_S)

    async def _kill_supervisor(self, bookie: Bookie, planned: Planned) -> None:
        await bookie.kill_supervisor()
        await self.start_bookie(bookie)

    async def _kill_bookie(self, bookie: Bookie, planned: Planned) -> None:
        """Kills also in the middle of the start, once or twice."""
        rng = random.Random(f"{planned.seed} {bookie.name}")  # noqa: S311
        await bookie.kill()
        while rng.random() < 0.3 and not self._stop.is_set():
            operation = self._history.begin("boot", bookie=bookie.name)
            starting = asyncio.ensure_future(bookie.start())
            await asyncio.wait([starting], timeout=rng.uniform(0.05, 2.0))
            await bookie.kill()
            await starting
            self._history.end(
                operation, "unknown", bookie=bookie.name, error="killed while it started"
            )
        await self.start_bookie(bookie)

    async def _restart(self, bookie: Bookie, planned: Planned) -> None:
        await self.stop_in_order(bookie)
        await self._for(planned.lasts_s)
        await self.start_bookie(bookie)

    async def _pause_child(self, role: str, bookie: Bookie, planned: Planned) -> None:
        found = bookie.children(role)
        if found:
            handle = bookie.hold(found[planned.disk % len(found)])
            await self._pause([] if handle is None else [handle], planned.lasts_s)

    async def _pause_supervisor(self, bookie: Bookie, planned: Planned) -> None:
        handle = bookie.hold_all()
        for each in handle[1:]:
            each.close()
        await self._pause(handle[:1], planned.lasts_s)

    async def _pause_bookie(self, bookie: Bookie, planned: Planned) -> None:
        await self._pause(bookie.hold_all(), planned.lasts_s)

    async def _pause(self, processes: list[ProcessHandle], seconds: float) -> None:
        with ExitStack() as stack:
            for each in processes:
                stack.callback(each.close)
                stack.callback(each.send, signal.SIGCONT)
                each.send(signal.SIGSTOP)
            await self._for(seconds)

    async def _use_up_descriptors(self, bookie: Bookie, planned: Planned) -> None:
        """The front-end can accept no more connections."""
        handle = next(filter(None, map(bookie.hold, bookie.children("frontend"))), None)
        if handle is not None:
            with handle:
                before = handle.limit_descriptors(0)
                await self._for(planned.lasts_s)
                handle.limit_descriptors(before)

    # ---- network --------------------------------------------------------------------------------

    async def _turn_network(self, state: State, bookie: Bookie, planned: Planned) -> None:
        """The end of the first of two overlapping faults opens the network for both."""
        bookie.proxy.turn(state)
        try:
            await self._for(planned.lasts_s)
        finally:
            bookie.proxy.turn("open")

    # ---- metadata store -------------------------------------------------------------------------

    async def _on_metadata(self, planned: Planned) -> None:
        fault = planned.fault
        objection = self._budget.objection(fault, "")
        if objection:
            self._history.note("skipped", fault=fault.name, bookie="", why=objection)
            return
        with self._budget.reserve(""):
            self.last = fault.name
            operation = self._history.begin("fault", fault=fault.name, lasts_s=planned.lasts_s)
            if fault.name == "metadata-away":
                await self._hide_metadata(planned.lasts_s)
            else:
                await self._lock_metadata(planned.lasts_s)
            self._history.end(operation, "ok", fault=fault.name)

    async def _hide_metadata(self, seconds: float) -> None:
        path = self._cluster.metadata_file
        metadata.hide(path)
        try:
            await self._for(seconds)
        finally:
            metadata.restore(path)

    async def _lock_metadata(self, seconds: float) -> None:
        lock = metadata.Lock(self._cluster.metadata_file)
        try:
            if await lock.acquire():
                await self._for(seconds)
        finally:
            lock.release()

    # ---- disks ----------------------------------------------------------------------------------

    async def _fill_disk(self, bookie: Bookie, planned: Planned) -> None:
        """A write that failed may have to be followed by a start, as after a crash of the host."""
        assert bookie.tmpfs is not None
        bookie.tmpfs.squeeze(random.Random(planned.seed).randrange(_SQUEEZED_BYTES))  # noqa: S311
        try:
            await self._for(planned.lasts_s)
        finally:
            bookie.tmpfs.widen()

    async def _lose_disks(self, bookie: Bookie, planned: Planned) -> None:
        """As in the manual: stop, an empty folder, ``cookie repair``, start."""
        rng = random.Random(planned.seed)  # noqa: S311
        count = len(bookie.disks)
        lost = range(count) if rng.random() < 0.3 else [planned.disk % count]
        if rng.random() < 0.5:
            await bookie.kill()
        for index in lost:
            bookie.lose_disk(index)
        await self._for(planned.lasts_s)
        await bookie.kill()
        if rng.random() < 0.5:
            await self._must_refuse(bookie)
        for index in lost:
            bookie.replace_disk(index)
        for tries in range(_COOKIE_TRIES):
            try:
                await bookie.repair_cookie()
                break
            except ChaosError:  # the metadata store may be unavailable
                if tries + 1 == _COOKIE_TRIES:
                    raise
                await asyncio.sleep(_START_PAUSE_S)
        await self.start_bookie(bookie)

    async def _must_refuse(self, bookie: Bookie) -> None:
        """Starts a bookie with an absent disk, which has to refuse."""
        operation = self._history.begin("boot", bookie=bookie.name, lacks_disk=True)
        started = await bookie.start()
        if started.ready:
            await bookie.kill()
        outcome: Outcome = "ok" if started.ready else "refused"
        self._history.end(operation, outcome, bookie=bookie.name, lacks_disk=True)

    async def _lose_trust(self, bookie: Bookie, planned: Planned) -> None:
        """The next start is an ordinary one again: ledgers in limbo stay there until they are repaired."""
        await bookie.kill()
        await self.start_bookie(bookie, {"strict_unclean_shutdown": "true"})
        await self._for(planned.lasts_s)
        if planned.seed % 2:
            await self.stop_in_order(bookie)
        else:
            await bookie.kill()
        await self.start_bookie(bookie)

    # ---- bookies that are restarted ---------------------------------------------------------------

    async def stop_in_order(self, bookie: Bookie) -> None:
        operation = self._history.begin("stop", bookie=bookie.name)
        status = await bookie.stop()
        self._history.end(
            operation, "ok" if status == 0 else "refused", bookie=bookie.name, status=status
        )

    async def start_bookie(self, bookie: Bookie, settings: dict[str, str] | None = None) -> bool:
        """Starts the bookie, repeatedly if necessary; True if it is up."""
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            operation = self._history.begin("boot", bookie=bookie.name)
            started = await bookie.start(settings)
            seconds = round(started.seconds, 3)
            if started.ready:
                self._history.end(operation, "ok", bookie=bookie.name, seconds=seconds)
                return True
            error = f"exit status {started.status}: {started.text}"
            self._history.end(
                operation, "refused", bookie=bookie.name, seconds=seconds, error=error
            )
            await bookie.kill()
            await asyncio.sleep(_START_PAUSE_S)
        return False

    async def _until_whole(self, bookie: Bookie) -> None:
        """The bookie may have lost something: waits until it is up, and nothing is in limbo. Then another one may lose
        data."""
        while not self._stop.is_set():
            if await self.becomes_whole(bookie, _WHOLE_S):
                self._budget.without_data.discard(bookie.name)
                return

    async def becomes_whole(self, bookie: Bookie, timeout_s: float) -> bool:
        """Waits until several consecutive polls find the bookie whole; True if they did. A failed disk is brought back
        by a start."""
        deadline = time.monotonic() + timeout_s
        polls = 0
        while time.monotonic() < deadline:
            if not self._budget.is_unaffected(bookie.name):
                polls = 0
            elif self._poller.has_failed_disk(bookie):
                with self._budget.reserve(bookie.name, restarts=True):
                    await self.stop_in_order(bookie)
                    await self.start_bookie(bookie)
            else:
                polls = polls + 1 if await self._poller.poll(bookie) else 0
            if polls == _POLLS:
                return True
            await asyncio.sleep(_POLL_PAUSE_S)
        return False
