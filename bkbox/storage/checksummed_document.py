"""Small documents on disk: one line of JSON, one line with its CRC32C. For files that an operator may want to read
with ``cat``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bkbox.errors import DamagedError, FormatVersionError
from bkbox.native.checksum import crc32c
from bkbox.storage.files import Files, write_atomic

FORMATS = {
    "CHECKPOINT": 1,
    "CONVERSION": 1,
    "DIRTY": 1,
    "DISK": 1,
    "DRAINING": 1,
    "EPOCH": 1,
    "JOBS": 1,
    "MOVES": 1,
    "READONLY": 1,
    "RETIRED": 1,
    "SCRUB": 1,
    "WITNESS": 1,
}
"""The format of each document that this version writes, and the highest that it reads."""


def write_document(files: Files, path: Path, fields: dict[str, Any]) -> None:
    """Replace the document at ``path`` durably."""
    line = json.dumps({"format": FORMATS[path.name], **fields}, sort_keys=True).encode() + b"\n"
    write_atomic(files, path, line + b"%08x\n" % crc32c(line))


def read_document(files: Files, path: Path) -> dict[str, Any] | None:
    """The fields of the document at ``path``, None if there is none.

    Raises DamagedError if the checksum or the form is wrong, FormatVersionError for a newer format, DiskError if it
    cannot be read.
    """
    data = files.read_bytes(path)
    if data is None:
        return None
    line, _, checksum = data.partition(b"\n")
    if checksum != b"%08x\n" % crc32c(line + b"\n"):
        raise DamagedError(f"{path}: wrong checksum")
    try:
        fields = json.loads(line)
        found = int(fields.pop("format"))
    except (
        ValueError,
        KeyError,
        AttributeError,
        TypeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise DamagedError(f"{path}: not a document of bkbox") from error
    version = FORMATS[path.name]
    if found > version:
        raise FormatVersionError(f"{path}: format {found}, this version reads up to {version}")
    assert isinstance(fields, dict)
    return fields
