"""One bookie that is killed again and again: in a process group of its own, so that one signal
ends all of it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

import psutil

from bkbox.api.admin.limbo import LIMIT_MAX
from bkbox.api.admin.socket_path import LIMBO_URL
from tests.harness.processes import BKBOX, BookieProcess
from tests.harness.waiting import wait_for

SETTINGS: dict[str, object] = {
    "segment_bytes_max": 262_144,
    "checkpoint_bytes": 131_072,
    "restart_backoff_initial_s": 0.001,
    "restart_backoff_max_s": 0.02,
    "repair_retry_initial_s": 0.05,
    "repair_retry_max_s": 0.2,
    "disk_reserve_bytes": 0,
    "disk_usage_max": 1.0,
}
"""Segments and checkpoints so small that rolls and checkpoints happen all the time."""


class CrashBookie(BookieProcess):
    """See above. ``environment``: what the next start has beyond that of the tests."""

    def __init__(self, root: Path, *, metadata: str = "", name: str = "bookie") -> None:
        super().__init__(root, metadata or f"sqlite:{root}/metadata.db", name=name)
        self.environment: dict[str, str] = {}

    def init_for(self, ack_after: str, *, disks: int = 2, **settings: object) -> CrashBookie:
        self.init(
            disks=disks,
            journal=ack_after == "journal",
            ack_after=ack_after,
            **{**SETTINGS, **settings},
        )
        return self

    def command(self) -> list[str]:
        """What ``launch`` starts."""
        return [*BKBOX, "run", "--config", str(self.config)]

    def launch(self) -> None:
        """Start without waiting."""
        self.process = subprocess.Popen(
            self.command(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **self.environment},
            process_group=0,
        )
        self.stderr = ""
        self._reader = threading.Thread(target=self._drain, args=(self.process,), daemon=True)
        self._reader.start()

    def start_again(self) -> None:
        self.launch()
        self.wait_ready()

    def kill(self) -> None:
        """SIGKILL every process of the bookie at once; returns when all are gone."""
        assert self.process is not None
        group = self.process.pid
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
        self.process.wait(20)
        wait_for(lambda: not _alive(group), "the killed bookie to be gone", pause=0.002)
        self._close()

    def pids(self, role: str) -> list[int]:
        """Of the children of a role that are running, as the supervisor sees them."""
        found = self.status()["processes"]
        return [item["pid"] for item in found if item["role"] == role and item["running"]]

    def limbo(self) -> set[int]:
        """The ledgers that are in limbo: no more than one page of them."""
        page = self.ask(f"{LIMBO_URL}?limit={LIMIT_MAX}")
        assert not page["more"]
        return {each["ledger"] for each in page["ledgers"]}

    def classes(self) -> set[str]:
        """The crash classes of the disks at the last start of each."""
        return {disk["crash_class"] for disk in self.status()["disks"]}


def _alive(group: int) -> bool:
    """Whether a process of the group has not ended; one that nobody reaped has."""
    for process in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                return True
    return False
