"""Recordings of snapshots: one JSON document a line, gzip. A recording is replayed on the same screens."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from bkbox.errors import EncodingError, OperatorError
from bkbox_tui.snapshot import Snapshot, from_json, to_json

_HEAD = {"bkbox_recording": 1}


class Recorder:
    """Writes a recording. Raises OperatorError rather than overwrite a file."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = gzip.open(path, "xt", encoding="utf-8")  # noqa: SIM115 closed by close()
        except FileExistsError:
            raise OperatorError(f"{path} is there already; record to another file") from None
        except OSError as error:
            raise OperatorError(f"{path} cannot be written: {error.strerror}") from error
        self.path = path
        self._line(_HEAD)

    def add(self, snapshot: Snapshot) -> None:
        """Adds a snapshot. Raises OSError if the disk does not accept it."""
        self._line(to_json(snapshot))

    def _line(self, document: object) -> None:
        self._file.write(json.dumps(document, separators=(",", ":")) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def read_recording(path: Path) -> Iterator[Snapshot]:
    """Snapshots in the order in which they were taken; a truncated one ends the recording.

    Raises OperatorError for a file that cannot be opened, EncodingError for one that is no recording.
    """
    try:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            yield from _snapshots(path, lines)
    except (EOFError, zlib.error):
        return  # the recorder was killed
    except gzip.BadGzipFile:
        raise EncodingError(f"{path} is no recording of bkbox tui") from None
    except OSError as error:
        raise OperatorError(f"{path} cannot be read: {error.strerror or error}") from error


def _snapshots(path: Path, lines: Iterator[str]) -> Iterator[Snapshot]:
    for number, line in enumerate(lines, start=1):
        if not line.endswith("\n"):
            return
        try:
            document = json.loads(line)
        except ValueError as error:
            raise EncodingError(f"{path}, line {number}: {error}") from None
        if number == 1:
            if document != _HEAD:
                raise EncodingError(f"{path} is no recording that this version of bkbox reads")
            continue
        yield from_json(document)
