"""The file system and the block device of a folder.

Sources: proc_pid_mountinfo(5); Documentation/ABI/stable/sysfs-block and Documentation/admin-guide/iostats.rst of
Linux.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from bkbox.base.host.files import HostFiles

_FLUSHES_FIELD = 15
"""Field of /sys/block/X/stat, counted from 0: flush requests completed (Linux 5.5 and later)."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A mounted file system: mount point, type, source, the options of the mount and of the file system, and the
    number of its device, ``MAJOR:MINOR``.
    """

    point: str
    kind: str
    source: str
    options: tuple[str, ...]
    number: str


@dataclass(frozen=True, slots=True)
class Device:
    """A block device: its folder in /sys, and its attributes. Sizes in bytes; None: not reported.

    ``volatile_cache``: it acknowledges writes that a power cut loses, unless it is flushed.
    """

    name: str
    folder: str
    volatile_cache: bool | None
    rotational: bool | None
    logical_block: int | None
    physical_block: int | None
    atomic_write: int | None


def mounts(host: HostFiles) -> list[Mount]:
    """All mounts that this process sees, in the order in which they were mounted."""
    found = []
    for line in host.lines("/proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        fields, more = before.split(), after.split()
        if len(fields) < 6 or len(more) < 2:
            continue
        options = [*fields[5].split(","), *(more[2].split(",") if len(more) > 2 else ())]
        point = _unescaped(fields[4])
        source = _unescaped(more[1])
        found.append(Mount(point, more[0], source, tuple(dict.fromkeys(options)), fields[2]))
    return found


def mount_of(host: HostFiles, folder: Path) -> Mount | None:
    """The file system of a folder; None if the kernel does not report it."""
    real = Path(os.path.realpath(folder))
    holding = [mount for mount in mounts(host) if real.is_relative_to(mount.point)]
    longest = max((len(mount.point) for mount in holding), default=0)
    # A later mount covers an earlier one at the same place.
    return next((mount for mount in reversed(holding) if len(mount.point) == longest), None)


def device_of(host: HostFiles, folder: Path) -> Device | None:
    """The whole disk under a folder (of a partition, the disk that it is part of). None if there is no block device:
    memory, the network, or a file system over several devices that does not name one.
    """
    number = _device_number(host, folder)
    if number is None:
        return None
    link = f"/sys/dev/block/{os.major(number)}:{os.minor(number)}"
    if not host.has(link):
        return None
    place = Path(os.path.realpath(host.at(link)))
    if host.has(f"{link}/partition"):
        place = place.parent
    shown = "/" + str(place.relative_to(os.path.realpath(host.root)))
    cache = host.text(f"{shown}/queue/write_cache")
    rotational = host.number(f"{shown}/queue/rotational")
    return Device(
        name=place.name,
        folder=shown,
        volatile_cache=None if cache is None else cache == "write back",
        rotational=None if rotational is None else rotational == 1,
        logical_block=host.number(f"{shown}/queue/logical_block_size"),
        physical_block=host.number(f"{shown}/queue/physical_block_size"),
        atomic_write=host.number(f"{shown}/queue/atomic_write_unit_max_bytes"),
    )


def flushes(host: HostFiles, device: Device) -> int | None:
    """Flush requests that the device has completed since the host started; None if the kernel does not count them."""
    fields = (host.text(f"{device.folder}/stat") or "").split()
    return int(fields[_FLUSHES_FIELD]) if len(fields) > _FLUSHES_FIELD else None


def _device_number(host: HostFiles, folder: Path) -> int | None:
    """The device number of the folder's file system, or, if that has no device of its own (btrfs, overlay), of its
    source.
    """
    try:
        number = os.stat(folder).st_dev
        if os.major(number) != 0:
            return number
        mount = mount_of(host, folder)
        if mount is not None and mount.source.startswith("/dev/"):
            return os.stat(host.at(mount.source)).st_rdev or None
    except OSError:
        return None
    return None


def _unescaped(text: str) -> str:
    """Text with the octal escapes of mountinfo (space, tab, line feed, backslash) resolved."""
    for escape, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(escape, character)
    return text
