"""Inspects the disks of a bookie that is not running, from the files on them."""

from __future__ import annotations

from pathlib import Path

from bkbox.api.admin.disks import DiskView
from bkbox.base.commandline import bookie_command
from bkbox.config.schema import Config
from bkbox.errors import DiskError
from bkbox.storage.disk import dirty_marker as markers
from bkbox.storage.disk.identity import read_identity
from bkbox.storage.files import Files, RealFiles, Space
from bkbox.supervisor.disks.disks import DRAINING
from bkbox.supervisor.disks.drain_marker import is_draining, is_removed
from bkbox.supervisor.disks.readonly_requests import read_mark


def inspect(config: Config) -> list[DiskView]:
    """All disks of the configuration. Writes nothing and takes no lock."""
    files = RealFiles()
    return [_view(files, path) for path in config.disks]


def _view(files: Files, path: Path) -> DiskView:
    state, uuid, reason, what_to_do = "not running", "-", "", ""
    space: Space | None = None
    try:
        space = files.space(path)
        identity = read_identity(files, path)
        if identity is None:
            state, reason = "not a disk", "it is not prepared, or not mounted"
            what_to_do = str(bookie_command("cookie", "verify"))
        else:
            uuid = str(identity.uuid)
    except DiskError as error:
        state, reason, what_to_do = (
            "unreadable",
            str(error),
            str(bookie_command("cookie", "verify")),
        )
    if is_removed(files, path):
        state, what_to_do = "removed", "take it out of `disks` in the configuration"
    read_only: list[str] = []
    if state == "not running":
        read_only += sorted(frozenset().union(*read_mark(files, path)))
        read_only += [DRAINING] if is_draining(files, path) else []
    return DiskView(
        path=str(path),
        disk=uuid,
        state=state,
        reason=reason,
        what_to_do=what_to_do,
        total_bytes=None if space is None else space.total,
        free_bytes=None if space is None else space.free,
        ledgers=None,
        limbo_ledgers=None,
        crash_class="clean" if markers.read_marker(files, path) is None else "unknown",
        read_only=tuple(read_only),
        worker_pid=None,
        restarts=None,
    )
