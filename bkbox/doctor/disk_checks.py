"""What can be seen of the folders of a bookie without writing to them and without any lock."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from bkbox.base.host.blocks import device_of
from bkbox.base.host.files import HostFiles
from bkbox.base.host.mounts import mount_identity
from bkbox.base.host.processes import flock_holder
from bkbox.base.words import error_text
from bkbox.config.schema import Config
from bkbox.doctor import file_system_checks
from bkbox.doctor.finding import Finding, fail, ok, warn
from bkbox.errors import DiskError
from bkbox.storage.disk import dirty_marker as markers
from bkbox.storage.disk.identity import read_identity
from bkbox.storage.disk.lock import LOCK_NAME
from bkbox.storage.files import Files

_KNOWN = frozenset(
    [
        "CHECKPOINT",
        "DIRTY",
        "DISK",
        "DRAINING",
        "EPOCH",
        "JOBS",
        "LOCK",
        "MOVES",
        "PROBE",
        "READONLY",
        "RESERVE",
        "RETIRED",
        "SCRUB",
        "TAIL",
        "VERSION",
        "WITNESS",
        "admin.sock",
        "entrylog",
        "index",
        "lost+found",
    ]
)
_INODES_FREE_MIN = 1_000


def check(config: Config, host: HostFiles, files: Files, *, running: bool) -> Iterator[Finding]:
    """All checks of all folders."""
    folders = [*config.disks, *((config.journal,) if config.journal else ())]
    for folder in folders:
        try:
            yield from _folder(config, host, files, folder, running=running)
        except (OSError, DiskError) as error:
            yield fail(
                "disk",
                str(folder),
                f"cannot be looked at: {error_text(error)}",
                f"ls -ld {folder}, as the user that runs the bookie",
            )
    yield from _shared_devices(host, config.disks)


def _folder(
    config: Config, host: HostFiles, files: Files, folder: Path, *, running: bool
) -> Iterator[Finding]:
    if not folder.is_dir():
        yield fail(
            "disk",
            str(folder),
            "there is no such folder: the disk is not mounted, or lost",
            f"mount {folder}; if it is lost: bkbox cookie repair --config {config.path}",
        )
        return
    identity = read_identity(files, folder)
    if identity is None:
        yield fail(
            "disk",
            str(folder),
            "it is not prepared as a disk of a bookie, or another disk is mounted there",
            f"bkbox cookie verify --config {config.path}",
        )
    else:
        yield ok("disk", str(folder), f"disk {identity.uuid} of {identity.bookie_id}")
    yield from _owner(folder)
    yield from file_system_checks.check(host, folder)
    yield from _space(config, folder)
    yield from _lock(host, folder, running=running)
    if not running and folder != config.journal and identity is not None:
        yield _marker(host, files, folder)
    yield from _leftovers(folder, running=running)


def _owner(folder: Path) -> Iterator[Finding]:
    found = folder.stat()
    if found.st_mode & 0o007:
        yield warn(
            "permissions",
            str(folder),
            "everybody on this host may look into it: entries are other people's data",
            f"chmod o-rwx {folder}",
        )
    if found.st_uid != os.geteuid():
        yield warn(
            "permissions",
            str(folder),
            f"it belongs to the user with id {found.st_uid}, and this is run by {os.geteuid()}: what is said here of "
            "access may not be true for the bookie",
            f"sudo -u '#{found.st_uid}' bkbox doctor …",
        )
    elif not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        yield fail("permissions", str(folder), "it cannot be written to", f"chmod u+rwx {folder}")


def _space(config: Config, folder: Path) -> Iterator[Finding]:
    found = os.statvfs(folder)
    total, free = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
    used = 1.0 - free / total if total else 1.0
    where, share = str(folder), f"{used:.1%} in use, {free / (1 << 30):.1f} GiB free"
    more = f"bkbox gc status --config {config.path}; or add a disk: bkbox disk add"
    if used >= config.disk_usage_max:
        limit = f"{config.disk_usage_max:.0%}"
        yield fail("space", where, f"{share}: beyond {limit} it takes no new entries", more)
    elif free < 2 * config.disk_reserve_bytes or used >= config.disk_usage_max - 0.05:
        yield warn("space", where, f"{share}: soon it takes no new entries", more)
    else:
        yield ok("space", where, share)
    if found.f_files and found.f_favail < _INODES_FREE_MIN:
        yield fail("space", where, f"{found.f_favail} inodes are left", f"df -i {folder}")


def _lock(host: HostFiles, folder: Path, *, running: bool) -> Iterator[Finding]:
    holder = flock_holder(host, folder / LOCK_NAME)
    if holder is not None and not running:
        yield fail(
            "lock",
            str(folder),
            f"the process with pid {holder}, or a child of it, has it in use, and no bookie answers",
            f"ps -o pid,ppid,args -p {holder}",
        )
    elif holder is None and running:
        yield warn("lock", str(folder), "the bookie runs and does not hold its lock")
    else:
        yield ok("lock", str(folder), f"held by pid {holder}" if holder else "free")


def _marker(host: HostFiles, files: Files, folder: Path) -> Finding:
    found = markers.read_marker(files, folder)
    if found is None:
        return ok("last stop", str(folder), "in order")
    boot_id = host.text("/proc/sys/kernel/random/boot_id") or ""
    if found.is_host_crash(boot_id, mount_identity(host, folder)):
        restarted = any(run.boot_id != boot_id for run in found.runs)
        reason = "; ".join(found.failures) or (
            "it stands in for a lost disk"
            if found.replaced
            else "the host was restarted since"
            if restarted
            else "its file system was mounted anew, or its device came back"
        )
        return warn(
            "last stop",
            str(folder),
            f"not in order ({reason}): the next start treats it as a crash of the host, looks for what is missing and "
            "brings it back from other bookies",
        )
    return warn(
        "last stop",
        str(folder),
        "processes were killed; the host stayed up and the file system mounted: nothing is lost, the next start reads "
        "the end of the log again",
    )


def _leftovers(folder: Path, *, running: bool) -> Iterator[Finding]:
    names = sorted(os.listdir(folder))
    strange = [name for name in names if name not in _KNOWN and not name.endswith(".new")]
    if strange:
        yield warn(
            "leftovers",
            str(folder),
            f"not bkbox's, or set aside by it: {', '.join(strange[:5])}{', …' if len(strange) > 5 else ''}",
            f"look at them, then move them away from {folder}",
        )
    unfinished = [name for name in names if name.endswith(".new")]
    if unfinished and not running:
        text = f"a change was interrupted: {', '.join(unfinished)}; the next start overwrites them"
        yield warn("leftovers", str(folder), text)


def _shared_devices(host: HostFiles, disks: Sequence[Path]) -> Iterator[Finding]:
    """Several disks of a bookie on one device: they fail together, and share what it can do."""
    seen: dict[str, Path] = {}
    for disk in disks:
        device = device_of(host, disk)
        if device is None:
            continue
        first = seen.setdefault(device.name, disk)
        if first != disk:
            yield warn(
                "disk",
                str(disk),
                f"it is on {device.name}, as is {first}: they fail together and wait for each other",
                "give each entry of `disks` a device of its own",
            )
