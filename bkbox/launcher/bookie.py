"""A bookie of this host: its files, and the process of its supervisor."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from bkbox.launcher.ports import HOST
from bkbox.launcher.processes import Processes


def init_arguments(
    config: str,
    metadata: str,
    port: int,
    disks: Iterable[Path],
    journal: Path | None,
    settings: Mapping[str, object],
) -> list[str]:
    """``init …``: the arguments that make a bookie on loopback."""
    arguments = ["init", "--config", config, "--metadata", metadata, "--listen", f"{HOST}:{port}"]
    for disk in disks:
        arguments += ["--disk", str(disk)]
    if journal is not None:
        arguments += ["--journal", str(journal)]
    for key, value in settings.items():
        arguments += ["--set", f"{key}={value}"]
    return arguments


class LocalBookie:
    """Its files are ``STEM.toml``, ``STEM.log`` (what it logs) and ``STEM.out`` (what it prints), in the folder of
    ``processes``. ``config``: as seen from there."""

    def __init__(
        self,
        processes: Processes,
        stem: str,
        port: int,
        disks: Iterable[Path],
        journal: Path | None = None,
    ) -> None:
        self.port = port
        self.disks = list(disks)
        self.config = f"{stem}.toml"
        self.log = processes.root / f"{stem}.log"
        self._journal = journal
        self._processes = processes
        self._out = processes.root / f"{stem}.out"
        self._process: subprocess.Popen[bytes] | None = None

    def init_arguments(self, metadata: str, settings: Mapping[str, object]) -> list[str]:
        """The arguments of ``bkbox`` that make it."""
        return init_arguments(self.config, metadata, self.port, self.disks, self._journal, settings)

    def launch(self, settings: Mapping[str, object] | None = None) -> None:
        """Starts ``bkbox run``; returns at once."""
        with self._out.open("wb") as out, self.log.open("ab") as log:
            self._process = self._processes.spawn(
                "run", "--config", self.config, stdout=out, stderr=log, settings=settings
            )

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The supervisor, which was launched."""
        assert self._process is not None
        return self._process

    @property
    def pid(self) -> int | None:
        """The process id of its supervisor, if that runs."""
        if self._process is None or self._process.poll() is not None:
            return None
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """Exit code of the last supervisor; None while it runs, or where none was launched."""
        return None if self._process is None else self._process.poll()

    @property
    def is_ready(self) -> bool:
        """True if it has printed that it serves clients."""
        return f"ready {HOST}:{self.port}" in self._out.read_text()

    @property
    def has_printed(self) -> bool:
        return self._out.stat().st_size > 0

    @property
    def is_ready_or_ended(self) -> bool:
        return self.exit_status is not None or self.is_ready

    @property
    def log_size(self) -> int:
        """Bytes; a position for ``log_from``."""
        return self.log.stat().st_size if self.log.exists() else 0

    def log_from(self, position: int) -> str:
        """The log's text from ``position``, an earlier ``log_size``, on."""
        with self.log.open("rb") as log:
            log.seek(position)
            return log.read().decode(errors="replace").strip()
