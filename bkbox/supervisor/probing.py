"""Probes of the disks (storage/probe.py), carried out by their workers: so it is their way to the disk that is
tried."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from bkbox.admin.health import Probe
from bkbox.errors import BkboxError
from bkbox.ipc import messages

if TYPE_CHECKING:
    from bkbox.supervisor.disks import Disk
    from bkbox.supervisor.supervisor import Supervisor

_AGAIN_S = 30.0
"""However often somebody asks for the bookie's health, its disks are not bothered more often."""

_TIMEOUT_S = 10.0


class Probes:
    """Those of one bookie."""

    def __init__(self, bookie: Supervisor) -> None:
        self._bookie = bookie
        self._found: dict[str, Probe] = {}
        self._probed_s = -_AGAIN_S
        self._one_at_a_time = asyncio.Lock()

    async def recent(self) -> list[Probe]:
        """Of each disk in service; made now if the last ones are old."""
        async with self._one_at_a_time:
            if time.monotonic() - self._probed_s >= _AGAIN_S:
                self._probed_s = time.monotonic()
                disks = [disk for disk in self._bookie.disks if disk.usable]
                probes = await asyncio.gather(*map(_probe, disks))
                self._found = {disk.uuid: one for disk, one in zip(disks, probes, strict=True)}
        return [
            self._found[disk.uuid]
            for disk in self._bookie.disks
            if disk.usable and disk.uuid in self._found
        ]


async def _probe(disk: Disk) -> Probe:
    began_ms, began_s = time.time_ns() // 1_000_000, time.monotonic()
    problem = ""
    try:
        found = await disk.call(messages.ProbeDisk(), timeout_s=_TIMEOUT_S)
        assert isinstance(found, messages.Probed)
        problem = found.problem
    except TimeoutError:
        problem = f"nothing came back within {_TIMEOUT_S:.0f} s"
    except BkboxError as error:
        problem = str(error)
    took_ms = (time.monotonic() - began_s) * 1000
    return Probe(str(disk.path), problem, round(took_ms, 3), began_ms)
