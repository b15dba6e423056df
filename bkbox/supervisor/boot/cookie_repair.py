"""Carries out the plans of cookies.py, and implements the commands that inspect and repair cookies.

Invariant: what a crash in between must not forget is written first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from uuid import UUID, uuid4

from bkbox.base.ids import BookieId
from bkbox.config.schema import Config
from bkbox.errors import OperatorError
from bkbox.metadata import connect
from bkbox.metadata.base import MetadataStore
from bkbox.storage.disk import dirty_marker as markers
from bkbox.storage.disk.format_disk import format_disk
from bkbox.storage.disk.identity import DiskIdentity, write_identity
from bkbox.storage.files import Files, RealFiles
from bkbox.supervisor.boot.cookies import (
    CookieReport,
    Evidence,
    RepairPlan,
    compare,
    gather,
    plan_of,
    removed,
)
from bkbox.supervisor.boot.witnessing import read_witness
from bkbox.supervisor.disks.disk_inspection import Directory, DirState, locked, stamp, write_epoch
from bkbox.supervisor.disks.witness import BookieRecord, encode_record, without_disks
from bkbox.wire.metadata import cookie as cookies
from bkbox.wire.metadata.cookie import Cookie


def prepare(files: Files, evidence: Evidence, item: Directory, uuid: UUID) -> None:
    """Make a data disk or a journal directory out of an empty directory."""
    identity = DiskIdentity(uuid, str(evidence.expected.bookie_host), evidence.instance_id)
    files.mkdir(item.path)
    if item is evidence.journal:
        write_identity(files, item.path, identity)
    else:
        format_disk(files, item.path, identity)


async def write_to_metadata(store: MetadataStore, evidence: Evidence) -> None:
    """Bring the metadata store's cookie up to date with the configuration, if they differ."""
    data = cookies.encode(evidence.expected)
    version = evidence.stored.version if evidence.stored is not None else None
    if evidence.stored is None or evidence.stored.value != data:
        await store.write_cookie(BookieId(str(evidence.expected.bookie_host)), data, version)


async def execute(
    evidence: Evidence,
    store: MetadataStore,
    files: Files,
    *,
    in_place_of: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Execute the plan of plan_of(). What a crash in between must not forget is written first.

    ``in_place_of`` maps the path of each empty replacement disk to the lost disk; nothing else counts as lost with one
    of these. The metadata store is written before the empty directories. A start is refused while they are empty, so no
    start can come between a disk's replacement and the epoch that bars the old disk.
    """
    assert evidence.stored is not None
    stored = cookies.decode(evidence.stored.value)
    epoch = 1 + max(evidence.stored.version, *(item.epoch for item in evidence.directories))
    losses = [
        f"disk {path} was taken out of the configuration"
        for path in removed(evidence, stored)
        if path not in in_place_of.values()
    ]
    for item in evidence.disks:
        if item.state is DirState.STALE and item.version is None:
            markers.record_failure(files, item.path, "VERSION was missing")
        if item.state is DirState.BYPASSED:
            markers.record_failure(files, item.path, "its cookie in the metadata store was newer")
        if item.state is DirState.PAST:
            reason = f"it was an older copy of itself: {item.detail}"
            markers.record_failure(files, item.path, reason)
        if item.state in (DirState.GOOD, DirState.STALE):
            for loss in losses:
                markers.record_failure(files, item.path, loss)
            if (
                _journal_lost(evidence, stored)
                and markers.read_marker(files, item.path) is not None
            ):
                markers.record_failure(files, item.path, "the journal was lost")
    for item in evidence.directories:
        if item.state is not DirState.EMPTY:
            write_epoch(files, item.path, epoch)
    bookie = BookieId(str(evidence.expected.bookie_host))
    await _forget_past(evidence, store, bookie)
    version = evidence.stored.version
    while version < epoch:  # a cookie that was deleted and created again counts from 0
        data = cookies.encode(evidence.expected)
        version = (await store.write_cookie(bookie, data, version)).version
    replacements = _replacements(evidence, stored, in_place_of)
    for item in evidence.directories:
        if item.state is DirState.EMPTY:
            files.mkdir(item.path)
            if item in replacements:
                markers.mark_replaced(files, item.path)
            write_epoch(files, item.path, epoch)
            prepare(files, evidence, item, uuid4())
    for item in evidence.directories:
        if item not in replacements and item.state is not DirState.REPLACED:
            stamp(files, item.path, evidence.expected)


async def _forget_past(evidence: Evidence, store: MetadataStore, bookie: BookieId) -> None:
    """Drop older copies of disks from the disk record: from now on their dirty markers carry the loss."""
    past = {
        str(item.identity.uuid)
        for item in evidence.disks
        if item.state is DirState.PAST and item.identity is not None
    }
    if past:
        record = without_disks(evidence.record, past)
        await store.write_disk_record(bookie, encode_record(record), evidence.record_version)


async def accept_older_metadata(evidence: Evidence, store: MetadataStore, files: Files) -> None:
    """Accept a metadata store that is behind the disks: its record is brought level with them."""
    found = [read_witness(files, item.path) for item in evidence.disks]
    seen = [each for each in found if each is not None]
    sequence = max((each.record.sequence for each in seen), default=0)
    known = max(evidence.record.generation, evidence.record.announced)
    generation = max((known, *(each.generation for each in seen)))
    record = BookieRecord(1 + max(sequence, evidence.record.sequence), generation, 0, {})
    bookie = BookieId(str(evidence.expected.bookie_host))
    await store.write_disk_record(bookie, encode_record(record), evidence.record_version)


def _replacements(
    evidence: Evidence, stored: Cookie, in_place_of: Mapping[str, str]
) -> list[Directory]:
    """The empty disks that replace lost ones. These are the disks that the stored cookie or the caller names. If the
    cookie names other disks and none of those is left to remember the loss (a Java bookie's cookie, for one), all empty
    disks are replacements."""
    empty = [item for item in evidence.disks if item.state is DirState.EMPTY]
    if removed(evidence, stored) and len(empty) == len(evidence.disks):
        return empty
    named = {*cookies.directories(stored.ledger_dirs), *in_place_of}
    return [item for item in empty if str(item.path) in named]


def _journal_lost(evidence: Evidence, stored: Cookie) -> bool:
    moved = (stored.journal_dir or "") != (evidence.expected.journal_dir or "")
    return moved or (evidence.journal is not None and evidence.journal.state is DirState.EMPTY)


# ---- for the commands -------------------------------------------------------------------------------


async def inspect(config: Config) -> CookieReport:
    """The report that `bkbox cookie show` and `verify` print. Changes nothing."""
    async with await connect(config.metadata, config.metadata_wait_s) as store:
        return compare(await gather(config, store, RealFiles()))


async def plan_repair(config: Config, *, older_metadata: bool = False) -> RepairPlan:
    """The plan of `bkbox cookie repair`. Changes nothing."""
    async with await connect(config.metadata, config.metadata_wait_s) as store:
        evidence = await gather(config, store, RealFiles())
    if not (older_metadata and evidence.store_rollback):
        return plan_of(evidence)
    plan = plan_of(replace(evidence, store_rollback=""))
    step = f"go on with a metadata store that is behind the disks ({evidence.store_rollback})"
    return plan if plan.refusal is not None else RepairPlan([step, *plan.steps])


async def apply_repair(config: Config, *, older_metadata: bool = False) -> None:
    """Carry out the repair with the disks locked. ``older_metadata`` accepts a metadata store that is behind the disks.
    Raises BookieRunningError, OperatorError."""
    files = RealFiles()
    with locked(config, files, create=True):
        async with await connect(config.metadata, config.metadata_wait_s) as store:
            evidence = await gather(config, store, files)
            if evidence.store_rollback and older_metadata:
                await accept_older_metadata(evidence, store, files)
                evidence = await gather(config, store, files)
            plan = plan_of(evidence)
            if plan.refusal is not None:
                raise OperatorError(plan.refusal)
            await execute(evidence, store, files)
