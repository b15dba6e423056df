"""Probes of the disks (storage/disk/write_probe.py), executed by their workers: so the probe takes the workers' path to
the disk."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from bkbox.checks.health import Probe
from bkbox.errors import BkboxError
from bkbox.ipc.messages.disk import Probed, ProbeDisk

if TYPE_CHECKING:
    from bkbox.supervisor.disks.disks import Disk
    from bkbox.supervisor.supervisor import Supervisor

_AGAIN_S = 30.0
"""Minimum seconds between two probes of a disk, however often the bookie's health is requested."""

_TIMEOUT_S = 10.0
_POLL_EVERY_S = 0.5


class Probes:
    """The probes of one bookie's disks."""

    def __init__(self, bookie: Supervisor) -> None:
        self._bookie = bookie
        self._found: dict[str, Probe] = {}
        self._probed_s: dict[str, float] = {}
        self._one_at_a_time = asyncio.Lock()

    async def recent(self) -> list[Probe]:
        """The last probe of each disk whose worker serves and makes progress; probed now if the last one is old."""
        async with self._one_at_a_time:
            due = [disk for disk in self._responsive() if self._is_due(disk)]
            probes = await asyncio.gather(*map(self._probe, due))
            for disk, probe in zip(due, probes, strict=True):
                if probe is not None:
                    self._found[disk.uuid] = probe
                    self._probed_s[disk.uuid] = time.monotonic()
        return [self._found[disk.uuid] for disk in self._responsive() if disk.uuid in self._found]

    def _responsive(self) -> list[Disk]:
        stall_of = self._bookie.progress.stall_of
        return [disk for disk in self._bookie.disks if disk.usable and stall_of(disk.child) is None]

    def _is_due(self, disk: Disk) -> bool:
        last_s = self._probed_s.get(disk.uuid)
        return last_s is None or time.monotonic() - last_s >= _AGAIN_S

    async def _probe(self, disk: Disk) -> Probe | None:
        """Probes a disk. None if its worker makes no more progress, which is reported without a probe."""
        began_ms, began_s = time.time_ns() // 1_000_000, time.monotonic()
        call = asyncio.ensure_future(disk.call(ProbeDisk(), timeout_s=_TIMEOUT_S))
        while not call.done():
            await asyncio.wait((call,), timeout=_POLL_EVERY_S)
            if not call.done() and self._bookie.progress.stall_of(disk.child) is not None:
                call.cancel()
                return None
        problem = ""
        try:
            found = call.result()
            assert isinstance(found, Probed)
            problem = found.problem
        except TimeoutError:
            problem = f"nothing came back within {_TIMEOUT_S:.0f} s"
        except BkboxError as error:
            problem = str(error)
        took_ms = (time.monotonic() - began_s) * 1000
        return Probe(str(disk.path), problem, round(took_ms, 3), began_ms)
