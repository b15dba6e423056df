"""The identity of a disk: ``<disk>/DISK``, written last when a disk is prepared, never changed.

A disk without it is not prepared. The uuid is part of every checksum of its log.
"""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from bkbox.base.values import as_dict, frozen_struct
from bkbox.errors import DamagedError
from bkbox.storage.checksummed_document import read_document, write_document
from bkbox.storage.files import Files

DISK_NAME = "DISK"


@frozen_struct
class DiskIdentity:
    """``uuid`` of the disk, and the bookie and cluster (instance id) it was prepared for."""

    uuid: UUID
    bookie_id: str
    instance_id: str


def read_identity(files: Files, disk: Path) -> DiskIdentity | None:
    """The identity, None on a disk that was never prepared. Raises DamagedError, FormatVersionError, DiskError."""
    path = disk / DISK_NAME
    fields = read_document(files, path)
    if fields is None:
        return None
    try:
        return DiskIdentity(
            UUID(fields["uuid"]), str(fields["bookie_id"]), str(fields["instance_id"])
        )
    except (KeyError, ValueError, AttributeError) as error:
        raise DamagedError(f"{path}: not a disk identity") from error


def write_identity(files: Files, disk: Path, identity: DiskIdentity) -> None:
    """Write the identity durably."""
    fields = {**as_dict(identity), "uuid": str(identity.uuid)}
    write_document(files, disk / DISK_NAME, fields)
