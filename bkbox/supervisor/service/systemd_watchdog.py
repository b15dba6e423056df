"""Reports a bookie's state to the service manager: progress of the start, readiness, liveness, the stop.

=========  ==========================================================================================
while it   it is told
=========  ==========================================================================================
starts     STATUS with the phase and the time left; more time (EXTEND_TIMEOUT_USEC), as long as every child
           that has been started shows progress
runs       READY once the port answers; WATCHDOG as long as this event loop turns and every child makes progress
stops      STOPPING; more time, as the stop has its own time-outs (stop_timeout_s)
=========  ==========================================================================================

A child that has *ended* does not end the signs of life: it is restarted (restart_policy.py), and all others serve
meanwhile. A child that runs without progress (child_progress.py) for half of the manager's time does, unless it was
killed and restarted before.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Protocol

from bkbox.base.text import counted
from bkbox.storage.files import Files
from bkbox.supervisor.service.child_progress import POLL_EVERY_S, Progress, children_of
from bkbox.supervisor.service.sd_notify import ServiceManager

if TYPE_CHECKING:
    from bkbox.supervisor.disks.disks import Disk
    from bkbox.supervisor.service.child_progress import ParentOfChildren
    from bkbox.supervisor.service.replay_progress import Replays

    class WatchedBookie(ParentOfChildren, Protocol):
        """The part of the supervisor that the notifier reads."""

        phase: str
        listen: str

        @property
        def writable(self) -> bool: ...

        @property
        def accepts_new_ledgers(self) -> bool: ...

        def refusal_reason(self, disk: Disk) -> str: ...


log = logging.getLogger(__name__)

_EXTEND_EVERY_S = 5.0
_EXTENSION_S = 30
"""Extra seconds for a start or stop, granted by each notification."""
_POLLS_PER_SILENCE = 8
_LONG_S = 3.0
"""Seconds after which a phase is reported with an estimate."""


class WatchdogNotifier:
    """Notifies the service manager of one bookie, as long as its context is open."""

    def __init__(
        self, bookie: WatchedBookie, manager: ServiceManager, files: Files, progress: Progress
    ) -> None:
        self._bookie = bookie
        self._files = files
        self._manager = manager
        self._progress = progress
        self._task: asyncio.Task[None] | None = None
        self._replays: Replays | None = None
        self._notified: set[str] = set()
        self._status = ""
        self._phase, self._phase_s = "", 0.0
        self._extended_s = self._pinged_s = -1e9
        self._silence_max_s = silence_max_s(manager)
        self._ping_every_s = 0.0 if manager.watchdog_s is None else self._silence_max_s / 2
        self._poll_every_s = min(POLL_EVERY_S, self._ping_every_s or POLL_EVERY_S)

    async def __aenter__(self) -> WatchdogNotifier:
        if self._manager.listens:
            self._task = asyncio.ensure_future(self._poll_forever())
            self._task.add_done_callback(_log_failure)
        return self

    async def __aexit__(self, *_how: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _poll_forever(self) -> None:
        while True:
            self.poll()
            await asyncio.sleep(self._poll_every_s)

    def poll(self) -> None:
        """Sends what is new: a changed state, or a sign of life that is due."""
        if not self._manager.listens:
            return
        now = time.monotonic()
        state = self._bookie.state
        if self._bookie.phase != self._phase:
            self._phase, self._phase_s = self._bookie.phase, now
        if state == "stopping" or (state == "running" and self._manager.watchdog_s is None):
            silent = []  # not used in this state
        else:
            silent = self._silent()
        self._tell_status(now, silent)
        if state == "running":
            self._once("READY")
            if self._manager.watchdog_s is not None and not silent:
                self._ping(now)
            return
        if state == "stopping":
            self._once("STOPPING")
        if not silent and now - self._extended_s >= _EXTEND_EVERY_S:
            self._extended_s = now
            self._manager.tell(EXTEND_TIMEOUT_USEC=_EXTENSION_S * 1_000_000)

    def _once(self, name: str) -> None:
        if name not in self._notified and self._manager.tell(**{name: 1}):
            self._notified.add(name)

    def _ping(self, now: float) -> None:
        # A tick that comes a little early counts: otherwise the notification would be a whole tick late.
        if now - self._pinged_s >= self._ping_every_s - self._poll_every_s / 2:
            self._pinged_s = now
            self._manager.tell(WATCHDOG=1)

    # ---- children -----------------------------------------------------------------------------------

    def _silent(self) -> list[str]:
        """Children without progress for too long, as text; also logged, once each."""
        found = []
        for what, child, _serves in children_of(self._bookie):
            seconds = self._progress.silent_s(child)
            if seconds > self._silence_max_s:
                found.append(f"{what} (pid {child.pid}) has shown no life for {seconds:.0f} s")
                if f"silent {child.pid}" not in self._notified:
                    self._notified.add(f"silent {child.pid}")
                    log.error("%s: the service manager's watchdog is not fed", found[-1])
            else:
                self._notified.discard(f"silent {child.pid}")
        return found

    # ---- text ---------------------------------------------------------------------------------------

    def _tell_status(self, now: float, silent: list[str]) -> None:
        status = "; ".join(silent) or self._status_text(now)
        if status != self._status and self._manager.tell(STATUS=status):
            self._status = status

    def _status_text(self, now: float) -> str:
        bookie = self._bookie
        if bookie.state == "stopping":
            return "stopping: what was acknowledged is made durable"
        if bookie.state != "running":
            eta_s = self._eta_s(now)
            left = "" if eta_s is None else f", about {duration(eta_s)} left"
            return f"starting: {self._phase}{left}"
        serving = sum(not bookie.refusal_reason(disk) for disk in bookie.disks)
        parts = [f"{serving} of {counted(len(bookie.disks), 'disk')} in service"]
        if not (bookie.writable and bookie.accepts_new_ledgers):
            parts.append("takes no new ledgers")
        limbo = sum(int(disk.stats.get("limbo_ledgers", 0)) for disk in bookie.disks)
        if limbo:
            parts.append(f"{counted(limbo, 'ledger')} in limbo")
        return f"serving on {bookie.listen}: {', '.join(parts)}"

    def _eta_s(self, now: float) -> float | None:
        if self._phase != "replay" or now - self._phase_s < _LONG_S:
            return None
        if self._replays is None:
            from bkbox.supervisor.service.replay_progress import (
                Replays,  # most starts are done before
            )

            self._replays = Replays(self._files, time.monotonic)
        return self._replays.eta_s(
            (disk.path, disk.child.pid)
            for disk in self._bookie.disks
            if disk.child is not None and disk.opened is None
        )


def silence_max_s(manager: ServiceManager) -> float:
    """Seconds that a child may be without progress before the watchdog is no longer notified."""
    return float(_EXTENSION_S) if manager.watchdog_s is None else manager.watchdog_s / 2


def poll_every_s(manager: ServiceManager) -> float:
    """Interval, in seconds, at which children have to be polled for that."""
    return min(POLL_EVERY_S, silence_max_s(manager) / _POLLS_PER_SILENCE)


def _log_failure(task: asyncio.Task[None]) -> None:
    """Logs why the manager gets no more notifications and is going to kill."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("the service manager is told nothing any more", exc_info=error)


def duration(seconds: float) -> str:
    """A duration as text, in steps that do not change with every tick: '40 s', '3 min', '2 h'."""
    if seconds < 90:
        return f"{max(5, round(seconds / 5) * 5)} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"
