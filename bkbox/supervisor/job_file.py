"""The registry of jobs on disk: one document, ``JOBS``, on every data disk that can be written.

Any one of the disks may be lost, so each has a copy; the copy with the highest sequence number is the newest. Nothing
else depends on it: if all copies are damaged, the bookie sets them aside and starts with an empty history.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bkbox.errors import BkboxError, DamagedError, DiskError, EncodingError, FormatVersionError
from bkbox.jobs.registry import Registry, registry_from_json
from bkbox.storage.checksummed_document import read_document, write_document
from bkbox.storage.files import Files
from bkbox.supervisor.disks.disk_inspection import JOBS_NAME

log = logging.getLogger(__name__)


class JobFile:
    """Reads and writes the documents. ``save`` counts the sequence number on from what ``load`` found."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._sequence = 0

    def load(self, disks: Sequence[Path]) -> Registry:
        """The newest registry of these disks; an empty one where there is none."""
        newest = Registry()
        for disk in disks:
            found = self._read(disk / JOBS_NAME)
            if found is not None and found[0] > self._sequence:
                self._sequence, newest = found
        return newest

    def _read(self, path: Path) -> tuple[int, Registry] | None:
        try:
            document = read_document(self._files, path)
            return None if document is None else _parsed(document)
        except (DamagedError, FormatVersionError, EncodingError) as error:
            self._set_aside(path, error)
        except DiskError as error:
            log.warning("the history of jobs in %s cannot be read: %s", path, error)
        return None

    def _set_aside(self, path: Path, error: BkboxError) -> None:
        aside = path.with_name(f"{JOBS_NAME}.aside")
        log.warning("the history of jobs in %s is set aside as %s: %s", path, aside.name, error)
        try:
            self._files.rename(path, aside)
        except DiskError as failure:
            log.warning("%s", failure)

    def next_document(self, registry: Registry) -> dict[str, object]:
        """The next document, for ``write`` to put on each disk."""
        self._sequence += 1
        return {"sequence": self._sequence, **registry.to_json()}

    def write(self, disk: Path, document: dict[str, object]) -> None:
        """Replace the document of one disk durably. Raises DiskError. May be called in a thread."""
        write_document(self._files, disk / JOBS_NAME, document)


def _parsed(document: dict[str, Any]) -> tuple[int, Registry]:
    sequence = document.get("sequence")
    if type(sequence) is not int:
        raise EncodingError("it has no sequence number")
    return sequence, registry_from_json(document)
