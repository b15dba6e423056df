"""The service of one open disk, in a worker process and in the simulator alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bkbox.bookie.bookie import Bookie
from bkbox.ipc.handlers import Handlers
from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.files import Files
from bkbox.worker.commit_groups import CommitGroups
from bkbox.worker.control_handlers import ControlHandlers
from bkbox.worker.disk_maintenance import DiskMaintenance, OpenFolder
from bkbox.worker.ledger_migration import LedgerMigrations
from bkbox.worker.stages import Stages


class DiskService:
    """An open disk with its commit groups, its migrations, its maintenance and its control handlers."""

    def __init__(
        self,
        files: Files,
        path: Path,
        store: DiskStore,
        bookie: Bookie,
        groups: CommitGroups,
        stages: Stages,
        ticks_us: Callable[[], int],
        watch_space: Callable[[], None],
        reserve_bytes: int = 0,
        open_folder: OpenFolder | None = None,
    ) -> None:
        """``watch_space``: checks the disk's free space; called before each report of it. ``open_folder``: as for
        DiskMaintenance. DamagedError, DiskError."""
        self.store = store
        self.bookie = bookie
        self.groups = groups
        self.stages = stages
        self.migrations = LedgerMigrations(files, path, store, bookie, groups, ticks_us)
        ledgers = self.migrations.assigned_ledgers
        self.maintenance = DiskMaintenance(
            files, path, store, bookie, groups, ledgers, reserve_bytes, open_folder
        )
        self._control = ControlHandlers(store, bookie, groups, stages, watch_space, ledgers)

    def register(self, handlers: Handlers) -> None:
        """Add the handlers of all calls to an open disk."""
        for part in (self._control, self.migrations, self.maintenance):
            part.register(handlers)
