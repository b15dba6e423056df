"""Writes the bundle: every byte of it passes through ``Secrets`` first."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bkbox.base.host.files import HostFiles
from bkbox.base.redaction import Secrets, known_secrets
from bkbox.base.text import error_text
from bkbox.bundle import parts
from bkbox.config.schema import Config
from bkbox.errors import HostError


@dataclass(slots=True)
class Bundle:
    """The files of a bundle by name, and the parts that are missing, with the reasons."""

    secrets: Secrets
    files: dict[str, str] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, make: Callable[[], object]) -> object:
        """Adds a file: text as it is, anything else as JSON. Returns the content, or None if it could not be made."""
        try:
            made = make()
        except parts.EXPECTED_ERRORS as error:
            self.problems[name] = self.secrets.removed_from(error_text(error))
            return None
        if isinstance(made, str):
            self.files[name] = self.secrets.removed_from(made)
        else:
            redacted = self.secrets.removed_from_value(made)
            self.files[name] = json.dumps(redacted, indent=1, ensure_ascii=False, default=str)
        return made


def collect(
    config: Config,
    environ: Mapping[str, str],
    *,
    logs: Mapping[str, Callable[[], str]],
    secrets: tuple[str, ...] = (),
) -> Bundle:
    """Collects everything available. ``logs``: by their names in the bundle; ``secrets``: more strings to remove."""
    host = HostFiles()
    bundle = Bundle(Secrets([*known_secrets(config.values(), environ), *secrets]))
    bundle.add("versions.json", parts.versions)
    bundle.add("config.json", lambda: parts.resolved_config(config))
    bundle.add("doctor.json", lambda: parts.doctor(config, environ))
    bundle.add("cookies.json", lambda: parts.cookies(config))
    bundle.add("host.json", lambda: parts.host_facts(config, host))
    document = bundle.add("status.json", lambda: parts.status(config))
    if isinstance(document, dict):
        bundle.add("jobs.json", lambda: parts.jobs(config))
        bundle.add("stages.json", lambda: parts.stages(document))
        bundle.add("threads.json", lambda: parts.thread_states(document, host))
    for name, read in logs.items():
        bundle.add(f"logs/{name}", read)
    bundle.add("manifest.json", lambda: {"holds": sorted(bundle.files), "missing": bundle.problems})
    return bundle


def write(bundle: Bundle, path: Path, folder: str, now_s: int) -> None:
    """Writes a tar.gz with everything in one folder, readable by its owner alone. Raises HostError if the file
    exists."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            for name, text in sorted(bundle.files.items()):
                data = text.encode("utf-8", "replace")
                entry = tarfile.TarInfo(f"{folder}/{name}")
                entry.size, entry.mode, entry.mtime = len(data), 0o600, now_s
                archive.addfile(entry, io.BytesIO(data))
    except FileExistsError:
        raise HostError(f"{path} exists already: choose another name") from None
    except OSError as error:
        raise HostError(f"cannot write {path}: {error.strerror or error}") from None
