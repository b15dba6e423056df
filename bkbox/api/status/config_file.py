"""The configuration file as it is now, which the next start will read: it may have been edited since this start."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from bkbox.config import load as configuration
from bkbox.config.schema import Config
from bkbox.errors import ConfigError


class ConfigFile:
    """Reads the file again only if it has changed; ``problem``: why a start would refuse it, otherwise empty."""

    def __init__(self, path: Path, environ: Mapping[str, str]) -> None:
        self._path = path
        self._environ = environ
        self._seen: tuple[int, ...] | None = None
        self._read = False
        self._config: Config | None = None
        self.problem = ""

    @property
    def has_changed(self) -> bool:
        """True if the file differs from the one that was read last."""
        return not self._read or self._identity() != self._seen

    def config(self) -> Config | None:
        """The configuration in the file; None if ``problem`` says why there is none."""
        if self.has_changed:
            self._seen, self._read = self._identity(), True
            try:
                self._config, self.problem = configuration.load(self._path, self._environ), ""
            except ConfigError as error:
                self._config, self.problem = None, "; ".join(error.problems)
        return self._config

    def _identity(self) -> tuple[int, ...] | None:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        # The time of the last change of content, owner or permissions, which nobody can set back.
        return found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns
