"""The host's statistics of a bookie's processes and of the devices under its disks (psutil, /sys).

Loaded with the first status document: a bookie whose status is never requested pays nothing for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from bkbox.api.admin.status import Device, Process
from bkbox.base.host import blocks
from bkbox.base.host.files import HostFiles

_CPU_OVER_S = 1.0
"""Minimum interval in seconds: the kernel counts in hundredths of a second, and several callers ask (screen, metrics,
health)."""


@dataclass(slots=True)
class _ProcessTime:
    """A process, and its CPU time at the moment from which its percentage counts."""

    process: psutil.Process
    since_s: float | None = None
    cpu_s: float = 0.0
    percent: float | None = None

    def counted(self, now_s: float, cpu_s: float) -> float | None:
        """The percentage, given its CPU time now; None at the first call, which has no interval."""
        if self.since_s is not None:
            passed_s = now_s - self.since_s
            if passed_s < _CPU_OVER_S:
                return self.percent
            self.percent = 100 * (cpu_s - self.cpu_s) / passed_s
        self.since_s, self.cpu_s = now_s, cpu_s
        return self.percent


@dataclass(frozen=True, slots=True)
class _Place:
    """The device under a folder. Looked up once: on a disk that hangs, every further look-up would hang."""

    name: str
    folder: str
    filesystem: str
    source: str


class HostFigures:
    """Statistics of one bookie. Keeps each process's CPU time at the last request, to compute percentages."""

    def __init__(
        self, host: HostFiles | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._host = host or HostFiles()
        self._clock = clock
        self._processes: dict[int, _ProcessTime] = {}
        self._places: dict[Path, _Place] = {}

    def measured(self, process: Process) -> Process:
        """The same process with the kernel's figures; unchanged if it has ended."""
        if not process.running:
            self._processes.pop(process.pid, None)
            return process
        try:
            known = self._processes.get(process.pid)
            if known is None or not known.process.is_running():
                known = self._processes[process.pid] = _ProcessTime(psutil.Process(process.pid))
            of_host = known.process
            with of_host.oneshot():
                times = of_host.cpu_times()
                cpu_s = times.user + times.system
                return replace(
                    process,
                    memory_bytes=of_host.memory_info().rss,
                    cpu_s=cpu_s,
                    cpu_percent=known.counted(self._clock(), cpu_s),
                    threads=of_host.num_threads(),
                    open_files=of_host.num_fds(),
                    started_ms=int(of_host.create_time() * 1000),
                )
        except psutil.Error:
            return process

    def device(self, disk: Path) -> Device | None:
        """The device under a disk; None if the host does not tell."""
        place = self._places.get(disk)
        if place is None:
            place = self._places[disk] = self._place(disk)
        if not place.filesystem:
            return None
        found = Device(
            name=place.name,
            filesystem=place.filesystem,
            device_errors=self._device_errors(place),
            filesystem_errors=self._filesystem_errors(place),
        )
        counted = psutil.disk_io_counters(perdisk=True, nowrap=False).get(place.name)
        if counted is None:
            return found
        return replace(
            found,
            reads=counted.read_count,
            writes=counted.write_count,
            read_bytes=counted.read_bytes,
            written_bytes=counted.write_bytes,
            busy_ms=counted.busy_time,
        )

    def _place(self, disk: Path) -> _Place:
        device, mount = blocks.device_of(self._host, disk), blocks.mount_of(self._host, disk)
        return _Place(
            name="" if device is None else device.name,
            folder="" if device is None else device.folder,
            filesystem="" if mount is None else mount.kind,
            source="" if mount is None else mount.source,
        )

    def _device_errors(self, place: _Place) -> int | None:
        """Errors of a SCSI device, which counts in hexadecimal."""
        text = self._host.text(f"{place.folder}/device/ioerr_cnt") if place.folder else None
        try:
            return None if text is None else int(text, 16)
        except ValueError:
            return None

    def _filesystem_errors(self, place: _Place) -> int | None:
        """Errors of an ext4 file system since it was made or checked."""
        name = place.source.removeprefix("/dev/")
        return self._host.number(f"/sys/fs/ext4/{name}/errors_count") if name else None
