"""The file systems that disks, journal and an embedded metadata store lie on: whether what is synced there stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bkbox.base.host.blocks import Device, Mount, device_of, mount_of
from bkbox.base.host.files import HostFiles
from bkbox.base.host.filesystems import device_name, risks
from bkbox.config import metadata_uri
from bkbox.config.schema import Config
from bkbox.doctor.finding import Finding, fail, ok, warn


def check(host: HostFiles, path: Path) -> Iterator[Finding]:
    """Of one folder or file; nothing where the kernel does not say what it lies on."""
    mount = mount_of(host, path)
    if mount is None:
        return
    where = str(path)
    found = risks(host, path)
    for risk in found:
        finding = fail if risk.grave else warn
        yield finding("file system", where, risk.text, risk.command)
    if not found:
        yield ok("file system", where, _described(mount, device_of(host, path)))
    yield from _errors(host, mount, path)


def of_metadata(config: Config, host: HostFiles) -> Iterator[Finding]:
    """Of the file of an embedded metadata store."""
    uri = metadata_uri.parse(config.metadata)
    if isinstance(uri, metadata_uri.SqliteUri):
        yield from check(host, uri.path)


def _described(mount: Mount, device: Device | None) -> str:
    if device is None:
        return f"{mount.kind} on {mount.source}"
    cache = {True: "with a volatile cache", False: "without a volatile cache", None: ""}
    return f"{mount.kind} on {device.name} {cache[device.volatile_cache]}".rstrip()


def _errors(host: HostFiles, mount: Mount, path: Path) -> Iterator[Finding]:
    """Errors that ext4 has counted; the count stays until the file system is checked."""
    count = host.number(f"/sys/fs/ext4/{device_name(host, mount)}/errors_count")
    if count:
        yield fail(
            "file system",
            str(path),
            f"ext4 has met {count} errors on {mount.source} since it was last checked",
            f"stop the bookie, then: umount {mount.point} && e2fsck -f {mount.source}",
        )
