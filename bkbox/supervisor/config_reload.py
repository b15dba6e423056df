"""Reloads a changed configuration while the bookie runs.

Which keys can change is in the schema (``live``). Values that children hold are sent to them; the supervisor
reads its own from its configuration whenever it uses them, and so does every child that is started later.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from bkbox.base import logs
from bkbox.base.text import quoted
from bkbox.config import changes as config_changes
from bkbox.config import load as configuration
from bkbox.config.changes import Change
from bkbox.config.schema import SCHEMA, is_live
from bkbox.errors import BkboxError
from bkbox.ipc.messages.process import Settings
from bkbox.supervisor.boot.other_writers import refuse_other_writers

if TYPE_CHECKING:
    from bkbox.config.schema import Config
    from bkbox.supervisor.access_policy import Credentials
    from bkbox.supervisor.children.child_group import ChildGroup
    from bkbox.supervisor.children.child_pool import ChildPool
    from bkbox.supervisor.children.process import Child
    from bkbox.supervisor.disks.disks import Disk
    from bkbox.supervisor.quotas import QuotaState

    class ReloadingBookie(Protocol):
        """The part of the supervisor that a reload uses."""

        config: Config

        @property
        def credentials(self) -> Credentials: ...
        @property
        def disks(self) -> list[Disk]: ...
        @property
        def frontends(self) -> ChildGroup: ...
        @property
        def child_pool(self) -> ChildPool: ...
        @property
        def quotas(self) -> QuotaState: ...
        @property
        def repair(self) -> Child | None: ...


log = logging.getLogger(__name__)


def reload(
    bookie: ReloadingBookie, environ: Mapping[str, str], *, dry_run: bool = False
) -> list[Change]:
    """Reads the configuration again and applies the changes, and the files of certificates and users. Raises
    ConfigError and BootError; then nothing has changed.

    ``dry_run``: only returns the changes.
    """
    found = configuration.load(bookie.config.path, environ)
    refuse_other_writers(found, os.geteuid())
    changes = config_changes.between(bookie.config, found)
    changed = config_changes.applied(bookie.config, found, changes)
    if dry_run:
        return changes
    bookie.credentials.load(changed)
    bookie.frontends.send(bookie.credentials.order)
    bookie.config = changed
    if changes:
        logs.set_level(bookie.config.log_level)
        bookie.child_pool.log = logs.LogSettings(bookie.config.log_level, bookie.config.log_format)
        _tell_children(bookie)
        bookie.quotas.configured()
    for change in changes:
        log.warning(
            "%s is now %s (%s), was %s",
            change.key,
            quoted(change.after),
            change.source,
            quoted(change.before),
        )
    return changes


def on_hangup(bookie: ReloadingBookie, environ: Mapping[str, str]) -> None:
    """As ``reload``, for a signal: the result is logged, as there is no caller to return it to."""
    try:
        if not reload(bookie, environ):
            log.info("SIGHUP: the configuration has not changed")
    except BkboxError as error:
        reason = "; ".join(str(error).splitlines())
        log.error("SIGHUP: the configuration is not taken over: %s", reason)


def _tell_children(bookie: ReloadingBookie) -> None:
    values = bookie.config.values()
    live = {name: values[name] for name, item in SCHEMA.items() if is_live(item)}
    bookie.frontends.send(Settings(values=live))
    for child in (*(disk.child for disk in bookie.disks), bookie.repair):
        if child is not None:
            child.control.send(Settings(values=live))
