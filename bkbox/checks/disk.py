"""The checks of a bookie's folders, without writing to them and without any lock."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote

from bkbox.base.commandline import bookie_command, plain_command
from bkbox.base.host.blocks import device_of
from bkbox.base.host.files import HostFiles
from bkbox.base.host.mounts import mount_identity
from bkbox.base.host.processes import flock_holder
from bkbox.base.text import error_text
from bkbox.checks import registry
from bkbox.checks.host import file_system, file_system_errors
from bkbox.checks.registry import Finding
from bkbox.config.schema import Config
from bkbox.errors import DiskError
from bkbox.storage.disk import dirty_marker as markers
from bkbox.storage.disk.identity import read_identity
from bkbox.storage.disk.lock import LOCK_NAME
from bkbox.storage.files import Files

_KNOWN = frozenset(
    (
        *("CHECKPOINT", "CONVERSION", "DIRTY", "DISK", "DRAINING", "EPOCH", "JOBS", "LOCK"),
        *("MOVES", "PROBE"),
        *("READONLY", "RESERVE", "RETIRED", "SCRUB", "TAIL", "VERSION", "WITNESS"),
        *("admin.sock", "entrylog", "index", "lost+found"),
    )
)
_INODES_FREE_MIN = 1_000


def check(config: Config, host: HostFiles, files: Files, *, running: bool) -> Iterator[Finding]:
    """All checks of all folders."""
    folders = [*config.disks, *((config.journal,) if config.journal else ())]
    for folder in folders:
        try:
            yield from _folder(config, host, files, folder, running=running)
        except (OSError, DiskError) as error:
            yield registry.DISK.fail(
                f"cannot be looked at: {error_text(error)}",
                str(folder),
                f"ls -ld {quote(str(folder))}",
            )
    yield from _shared_devices(host, config.disks)


def _folder(
    config: Config, host: HostFiles, files: Files, folder: Path, *, running: bool
) -> Iterator[Finding]:
    where = str(folder)
    if not folder.is_dir():
        yield registry.DISK.fail(
            "there is no such folder: the disk is not mounted, or lost",
            where,
            f"mount {quote(str(folder))}; if it is lost: {bookie_command('cookie', 'repair')}",
        )
        return
    identity = read_identity(files, folder)
    if identity is None:
        yield registry.DISK.fail(
            "it is not prepared as a disk of a bookie, or another disk is mounted there",
            where,
            str(bookie_command("cookie", "verify")),
        )
    else:
        yield registry.DISK.ok(f"disk {identity.uuid} of {identity.bookie_id}", where)
    yield from _owner(config, folder)
    yield from file_system(host, folder)
    yield from file_system_errors(host, folder)
    yield from _space(config, folder)
    yield from _lock(host, folder, running=running)
    if not running and folder != config.journal and identity is not None:
        yield _marker(host, files, folder)
    yield from _leftovers(folder, running=running)


def _owner(config: Config, folder: Path) -> Iterator[Finding]:
    found, where = folder.stat(), str(folder)
    if found.st_mode & 0o007:
        yield registry.PERMISSIONS.warn(
            "every user of this host may look into it: entries are other people's data",
            where,
            f"chmod o-rwx {quote(str(folder))}",
        )
    if found.st_uid != os.geteuid():
        yield registry.PERMISSIONS.warn(
            f"it belongs to the user with id {found.st_uid}, and this is run by {os.geteuid()}: what is said here of "
            "access may not be true for the bookie",
            where,
            f"sudo -u '#{found.st_uid}' {plain_command('doctor', '--config', os.path.abspath(config.path))}",
        )
    elif not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        yield registry.PERMISSIONS.fail(
            "it cannot be written to", where, f"chmod u+rwx {quote(str(folder))}"
        )


def _space(config: Config, folder: Path) -> Iterator[Finding]:
    found = os.statvfs(folder)
    total, free = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
    used = 1.0 - free / total if total else 1.0
    where, share = str(folder), f"{used:.1%} in use, {free / (1 << 30):.1f} GiB free"
    if used >= config.disk_usage_max:
        limit = f"{config.disk_usage_max:.0%}"
        text = f"{share}: beyond {limit} it takes no new entries; free some, or add a disk"
        yield registry.SPACE.fail(text, where)
    elif free < 2 * config.disk_reserve_bytes or used >= config.disk_usage_max - 0.05:
        yield registry.SPACE.warn(
            f"{share}: soon it takes no new entries; free some, or add a disk", where
        )
    else:
        yield registry.SPACE.ok(share, where)
    if found.f_files and found.f_favail < _INODES_FREE_MIN:
        yield registry.SPACE.fail(
            f"{found.f_favail} inodes are left", where, f"df -i {quote(str(folder))}"
        )


def _lock(host: HostFiles, folder: Path, *, running: bool) -> Iterator[Finding]:
    holder = flock_holder(host, folder / LOCK_NAME)
    if holder is not None and not running:
        yield registry.LOCK.fail(
            f"the process with pid {holder}, or a child of it, has it in use, and no bookie answers",
            str(folder),
            f"ps -o pid,ppid,args -p {holder}",
        )
    elif holder is None and running:
        yield registry.LOCK.warn(
            "the bookie runs and does not hold its lock", str(folder), command=""
        )
    else:
        yield registry.LOCK.ok(f"held by pid {holder}" if holder else "free", str(folder))


def _marker(host: HostFiles, files: Files, folder: Path) -> Finding:
    found = markers.read_marker(files, folder)
    if found is None:
        return registry.LAST_STOP.ok("in order", str(folder))
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
        return registry.LAST_STOP.warn(
            f"not in order ({reason}): the next start treats it as a crash of the host, looks for what is missing and "
            "brings it back from other bookies",
            str(folder),
            "",
        )
    return registry.LAST_STOP.warn(
        "processes were killed; the host stayed up and the file system mounted: nothing is lost, the next start reads "
        "the end of the log again",
        str(folder),
        "",
    )


def _leftovers(folder: Path, *, running: bool) -> Iterator[Finding]:
    names = sorted(os.listdir(folder))
    strange = [name for name in names if name not in _KNOWN and not name.endswith(".new")]
    if strange:
        yield registry.LEFTOVERS.warn(
            f"not bkbox's, or set aside by it: {', '.join(strange[:5])}{', …' if len(strange) > 5 else ''}: look "
            "at them, and move them away",
            str(folder),
        )
    unfinished = [name for name in names if name.endswith(".new")]
    if unfinished and not running:
        text = f"a change was interrupted: {', '.join(unfinished)}; the next start overwrites them"
        yield registry.LEFTOVERS.warn(text, str(folder), "")


def _shared_devices(host: HostFiles, disks: Sequence[Path]) -> Iterator[Finding]:
    """Several disks of a bookie on one device: they fail together, and share what it can do."""
    seen: dict[str, Path] = {}
    for disk in disks:
        device = device_of(host, disk)
        if device is None:
            continue
        first = seen.setdefault(device.name, disk)
        if first != disk:
            yield registry.DISK.warn(
                f"it is on {device.name}, as is {first}: they fail together and wait for each other; give each disk "
                "a device of its own",
                str(disk),
                f"findmnt -T {quote(str(disk))}",
            )
