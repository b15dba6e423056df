"""Bookies and commands in one folder, of which no process stays behind."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Self

from bkbox.errors import BkboxError, CallerError
from bkbox.launcher.processes import Processes, own_environment


class LocalCluster(Processes):
    """The folder and the processes; used with ``with``. ``keep``: a new or empty folder that stays; None: a temporary
    one, named after ``name``. ``failed``: what is raised if a command fails."""

    def __init__(self, name: str, keep: Path | None, failed: type[BkboxError]) -> None:
        super().__init__(Path(), own_environment(), failed)
        self._name = name
        self._keep = keep

    def __enter__(self) -> Self:
        """Raises CallerError if the folder cannot be used."""
        if self._keep is None:
            self.root = Path(tempfile.mkdtemp(prefix=f"bkbox-{self._name}-"))
            return self
        self.root = self._keep.absolute()
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            if any(self.root.iterdir()):
                raise CallerError(f"{self.root} is not empty: choose another folder to keep")
        except OSError as error:
            raise CallerError(f"cannot use {self.root}: {error.strerror}") from error
        return self

    def __exit__(self, *_error: object) -> None:
        try:
            self.end_all()
        finally:
            if self._keep is None:
                shutil.rmtree(self.root)

    @property
    def metadata(self) -> str:
        """The URI of the metadata store of all bookies."""
        return f"sqlite:{self.root / 'metadata.db'}"
