"""Witnesses of the disks of a bookie: detect a disk, or a metadata store, that is an older copy of itself.

An older copy of a disk is consistent in itself, and has no trace of later changes. So the state of a disk is also
recorded where an older copy of that disk cannot revert it: in the metadata store (*record*), and on every disk
(``WITNESS``), which has the record as it was stored last.

- A *generation* counts the starts of the bookie. Each start takes the next one: the record says that it has
  *announced*, then the disks get it, then the record has it. A disk whose generation is behind that of the record was
  absent when the bookie last used it, unless the start that took it never came to use it.
- The record of each disk has the number of its last checkpoint and the position up to which its log was durable, at
  most five seconds old.
- A record that is behind what a disk has seen of it comes from an older copy of the metadata store.
- A disk that failed since it was last known to be whole is noted on all others, in the run directory and in the record:
  its own dirty marker may never have been written to it.

Pure functions; witnessing.py reads and writes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from bkbox.base.text import error_text
from bkbox.base.values import frozen_struct, replaced
from bkbox.errors import DamagedError

WITNESS_NAME = "WITNESS"


@frozen_struct
class DiskRecord:
    """The record of one disk: the generation that used it last, the number of its last checkpoint, the position up to
    which its log was durable, and why it failed since it was last known to be whole (empty: it did not)."""

    generation: int
    checkpoint: int = 0
    segment: int = 0
    offset: int = 0
    failed: str = ""


@frozen_struct
class BookieRecord:
    """The metadata store's record of a bookie. ``sequence`` counts its writes; ``announced``: the generation of a start
    that may have reached some of the disks, 0 if there is none. ``disks`` by uuid."""

    sequence: int
    generation: int
    announced: int
    disks: Mapping[str, DiskRecord]


NOTHING = BookieRecord(0, 0, 0, {})


@frozen_struct
class DiskWitness:
    """The witness on one disk: its own generation, the record as it was stored last, and failures of other disks, by
    uuid."""

    generation: int
    record: BookieRecord
    failed: Mapping[str, str]


def encode_record(record: BookieRecord) -> bytes:
    return json.dumps(record_fields(record), sort_keys=True).encode()


def decode_record(data: bytes) -> BookieRecord:
    """Raises DamagedError."""
    try:
        return record_of(json.loads(data))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedError(
            f"the record of the bookie's disks cannot be read: {error_text(error)}"
        ) from error


def record_fields(record: BookieRecord) -> dict[str, Any]:
    disks = {
        uuid: {
            "generation": disk.generation,
            "checkpoint": disk.checkpoint,
            "segment": disk.segment,
            "offset": disk.offset,
            "failed": disk.failed,
        }
        for uuid, disk in record.disks.items()
    }
    return {
        "sequence": record.sequence,
        "generation": record.generation,
        "begun": record.announced,
        "disks": disks,
    }


def record_of(fields: dict[str, Any]) -> BookieRecord:
    """Raises KeyError, TypeError, ValueError, AttributeError."""
    disks = {
        str(uuid): DiskRecord(
            int(disk["generation"]),
            int(disk["checkpoint"]),
            int(disk["segment"]),
            int(disk["offset"]),
            str(disk["failed"]),
        )
        for uuid, disk in fields["disks"].items()
    }
    return BookieRecord(
        int(fields["sequence"]), int(fields["generation"]), int(fields["begun"]), disks
    )


def store_rollback(record: BookieRecord, witnesses: Mapping[str, DiskWitness | None]) -> str:
    """Why the metadata store is an older copy of itself; empty without evidence. ``witnesses``: by uuid."""
    for witness in witnesses.values():
        if witness is None:
            continue
        if witness.record.sequence > record.sequence:
            return f"its record of the disks is number {record.sequence}, and they have seen {witness.record.sequence}"
        if witness.generation > max(record.generation, record.announced):
            newest = max(record.generation, record.announced)
            return f"it knows of {newest} starts of the bookie, and a disk of {witness.generation}"
    return ""


def disk_rollback(
    record: BookieRecord, uuid: str, witness: DiskWitness | None, checkpoint: int
) -> str:
    """Why a disk is an older copy of itself; empty without evidence. ``checkpoint``: number of its last one."""
    noted = record.disks.get(uuid)
    if noted is None:
        return ""
    generation = 0 if witness is None else witness.generation
    if generation < noted.generation:
        newest = noted.generation
        return f"it was last used by start {generation} of the bookie, and the metadata store knows of {newest}"
    if checkpoint < noted.checkpoint:
        return f"its last checkpoint is {checkpoint}, and the metadata store knows of {noted.checkpoint}"
    return ""


def failures(
    record: BookieRecord, witnesses: Mapping[str, DiskWitness | None], uuid: str
) -> list[str]:
    """Why a disk failed since it was last known to be whole, by all other witnesses."""
    found = [record.disks[uuid].failed] if uuid in record.disks else []
    for other, witness in witnesses.items():
        if other != uuid and witness is not None:
            found.append(witness.failed.get(uuid, ""))
    return sorted({reason for reason in found if reason})


def with_announced(record: BookieRecord, generation: int) -> BookieRecord:
    """The record before a start writes this generation to the disks."""
    return replaced(record, sequence=record.sequence + 1, announced=generation)


def without_disks(record: BookieRecord, lost: Collection[str]) -> BookieRecord:
    """The record without disks, by uuid; an announced start stays announced, as other disks may have its generation."""
    left = {uuid: disk for uuid, disk in record.disks.items() if uuid not in lost}
    return replaced(record, sequence=record.sequence + 1, disks=left)


def with_disks(
    record: BookieRecord, generation: int, disks: Mapping[str, DiskRecord]
) -> BookieRecord:
    """The record with these disks; disks that are not named are no longer in use."""
    return BookieRecord(record.sequence + 1, generation, 0, dict(disks))
