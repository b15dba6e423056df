"""Cookies: compares disks, metadata store and configuration, and plans the repair where they differ.

A cookie in BookKeeper's own format (wire/metadata/cookie.py) is kept in the metadata store and in every directory of a
bookie (disk_inspection.py). Pure functions compare the evidence and make the plan; cookie_repair.py executes it. The
rules of repair:

- a directory that the stored cookie names and that is empty now was lost: it is prepared again and marked 'replaced',
  so that the next start goes through phase one and stamps ``VERSION`` only afterwards;
- an empty directory that the stored cookie does not name is new: nothing was lost with it;
- any other possible loss (a ``VERSION`` that vanished alone, a disk taken out of the configuration, a journal that is
  gone under disks that were not stopped cleanly) is recorded in the dirty markers first, which makes the next start a
  host crash;
- a directory of another bookie or another cluster, one that is out of date, or one that holds something else, is never
  written to.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from bkbox.base.commandline import bookie_command, plain_command
from bkbox.base.ids import BookieId
from bkbox.base.values import replaced
from bkbox.config.schema import Config
from bkbox.errors import EncodingError, FormatVersionError
from bkbox.metadata.base import MetadataStore
from bkbox.metadata.versioned import Versioned
from bkbox.storage.disk.formats import check_formats
from bkbox.storage.files import Files
from bkbox.supervisor.boot.witnessing import checkpoint_number, read_record, read_witness
from bkbox.supervisor.disks.disk_inspection import (
    NEVER_WRITTEN_TO,
    OURS,
    Directory,
    DirState,
    inspect_directory,
    mark_outdated,
)
from bkbox.supervisor.disks.witness import NOTHING, BookieRecord, disk_rollback, store_rollback
from bkbox.wire.metadata import cookie as cookies
from bkbox.wire.metadata.cookie import Cookie


@dataclass(frozen=True, slots=True)
class Difference:
    """A field of the cookie that is not what it should be, and where."""

    where: str
    field: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.where}: {self.field} is {self.found}, expected {self.expected}"


@dataclass(frozen=True, slots=True)
class DiskCookie:
    """A directory's part of the report."""

    path: str
    text: str | None
    problem: str | None
    fix: str | None


@dataclass(frozen=True, slots=True)
class CookieReport:
    """The whole comparison. ``ok`` means that the bookie may start."""

    ok: bool
    metadata: str | None
    disks: list[DiskCookie]
    differences: list[Difference]
    advice: str


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """The plan of a repair, as text; ``refusal`` says why it must not be done."""

    steps: list[str] = field(default_factory=list)
    refusal: str | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """The input of the functions that compare cookies."""

    expected: Cookie
    instance_id: str
    stored: Versioned[bytes] | None
    disks: tuple[Directory, ...]
    journal: Directory | None
    let_go: frozenset[str] = frozenset()
    """Paths of empty disks, as `bkbox disk remove` has noted on them."""
    record: BookieRecord = NOTHING
    record_version: int | None = None
    """The stored disk record's version; the record is empty where this is None."""
    store_rollback: str = ""
    """Why the metadata store is an older copy of itself; empty without evidence of that."""

    @property
    def directories(self) -> tuple[Directory, ...]:
        return (*self.disks, self.journal) if self.journal is not None else self.disks


def expected_cookie(config: Config, instance_id: str) -> Cookie:
    """The cookie of this configuration."""
    return cookies.cookie_of(
        config.bookie_id,
        [str(config.journal)] if config.journal else [],
        [str(disk) for disk in config.disks],
        None,
        instance_id,
    )


async def gather(config: Config, store: MetadataStore, files: Files) -> Evidence:
    """Gather the evidence from disks, configuration and metadata store."""
    instance_id = await store.instance_id()
    bookie = BookieId(config.bookie_id)
    stored = await store.read_cookie(bookie)
    record, version = await read_record(store, bookie)
    found = inspect_disks(config, files, instance_id, stored)
    found = replace(
        found,
        disks=tuple(_of_known_format(item, files) for item in found.disks),
        journal=None if found.journal is None else _of_known_format(found.journal, files),
        record=record,
        record_version=version,
    )
    return _in_present(found, files)


def _of_known_format(item: Directory, files: Files) -> Directory:
    """The directory, unreadable if a newer version of bkbox wrote to it."""
    try:
        check_formats(files, item.path)
    except FormatVersionError as error:
        return Directory(item.path, DirState.UNREADABLE, str(error))
    return item


def _in_present(evidence: Evidence, files: Files) -> Evidence:
    """Add the findings about older copies, of a disk or of the metadata store (witness.py)."""
    record = evidence.record
    ours = {
        str(item.identity.uuid): item
        for item in evidence.disks
        if item.identity is not None and item.state in OURS
    }
    witnesses = {uuid: read_witness(files, item.path) for uuid, item in ours.items()}
    rollback = store_rollback(record, witnesses)
    if rollback:
        return replace(evidence, store_rollback=rollback)
    details = {
        item.path: disk_rollback(record, uuid, witnesses[uuid], checkpoint_number(files, item.path))
        for uuid, item in ours.items()
    }
    disks = tuple(
        replaced(item, state=DirState.PAST, detail=details[item.path])
        if details.get(item.path)
        else item
        for item in evidence.disks
    )
    return replace(evidence, disks=disks)


def inspect_disks(
    config: Config, files: Files, instance_id: str, stored: Versioned[bytes] | None
) -> Evidence:
    """The part of gather() that waits for disks. ``stored``: the cookie in the metadata store."""
    expected = expected_cookie(config, instance_id)
    paths = (*config.disks, *((config.journal,) if config.journal else ()))
    found = mark_outdated(
        [inspect_directory(files, path, expected, instance_id) for path in paths], stored
    )
    count = len(config.disks)
    journal = next(iter(found[count:]), None)
    named = _named_before(stored) - {str(disk) for disk in config.disks}
    let_go = frozenset(
        path
        for path in named
        if inspect_directory(files, Path(path), expected, instance_id).state is DirState.REMOVED
    )
    return Evidence(expected, instance_id, stored, found[:count], journal, let_go)


def _named_before(stored: Versioned[bytes] | None) -> set[str]:
    try:
        return (
            set(cookies.directories(cookies.decode(stored.value).ledger_dirs)) if stored else set()
        )
    except EncodingError:
        return set()


# ---- comparison -------------------------------------------------------------------------------------


def compare(evidence: Evidence) -> CookieReport:
    """Compare metadata, directories and configuration."""
    found: list[Difference] = []
    stored_text = None
    if evidence.stored is None:
        found.append(Difference("metadata", "cookie", "a cookie of this bookie", "(none)"))
    else:
        stored_text = evidence.stored.value.decode("utf-8", "replace")
        found += _metadata_differences(evidence.expected, evidence.stored.value)
    if evidence.store_rollback:
        found.append(
            Difference(
                "metadata", "age", "not behind the disks", f"behind: {evidence.store_rollback}"
            )
        )
    for directory in evidence.directories:
        found += _directory_differences(evidence, directory)
    ok = not found
    plan = plan_of(evidence)
    disks = [
        DiskCookie(
            str(item.path),
            item.version.decode("utf-8", "replace") if item.version is not None else None,
            None
            if item.state in (DirState.GOOD, DirState.REPLACED)
            else item.detail or item.state.value,
            None if item.state is DirState.GOOD else _fix(item, plan),
        )
        for item in evidence.directories
    ]
    return CookieReport(ok, stored_text, disks, found, "" if ok else _advice(plan))


def _metadata_differences(expected: Cookie, stored: bytes) -> list[Difference]:
    try:
        cookie = cookies.decode(stored)
    except EncodingError as error:
        return [Difference("metadata", "cookie", "a cookie", f"unreadable ({error})")]
    return [
        Difference("metadata", item.field, item.config, item.stored)
        for item in cookies.differences(expected, cookie)
    ]


def _directory_differences(evidence: Evidence, directory: Directory) -> list[Difference]:
    if directory.state in (DirState.GOOD, DirState.REPLACED):
        return []
    where = str(directory.path)
    if directory.state is DirState.PAST:
        found_age = f"an older copy of the disk: {directory.detail}"
        return [Difference(where, "age", "not behind the metadata store", found_age)]
    if directory.state in (DirState.BYPASSED, DirState.OUTDATED):
        assert evidence.stored is not None
        versions = (str(evidence.stored.version), f"{directory.epoch} ({directory.detail})")
        return [Difference(where, "EPOCH", *versions)]
    if directory.version is not None:
        try:
            found = cookies.differences(evidence.expected, cookies.decode(directory.version))
        except EncodingError:
            found = []
        if found:
            return [Difference(where, item.field, item.config, item.stored) for item in found]
    listed = "journalDir" if directory is evidence.journal else "ledgerDirs"
    expected = (
        evidence.expected.journal_dir
        if directory is evidence.journal
        else evidence.expected.ledger_dirs
    )
    return [
        Difference(
            where, listed, (expected or "").replace("\t", " "), f"missing: {directory.detail}"
        )
    ]


def _fix(directory: Directory, plan: RepairPlan) -> str:
    if directory.state is DirState.REPLACED:
        return "start the bookie: phase one fences its ledgers, then VERSION is stamped"
    return str(bookie_command("cookie", "repair")) if plan.refusal is None else plan.refusal


def _advice(plan: RepairPlan) -> str:
    return f"run: {bookie_command('cookie', 'repair')}" if plan.refusal is None else plan.refusal


def plan_of(evidence: Evidence) -> RepairPlan:
    """Plan the repair, or say why there must be none."""
    for item in evidence.directories:
        if item.state is DirState.HALF_CONVERTED:
            return RepairPlan(refusal=f"{item.path}: {item.detail}")
    if evidence.stored is None:
        if all(item.state is DirState.EMPTY for item in evidence.directories):
            return RepairPlan(
                refusal=f"this bookie is not known yet: see {plain_command('init', '--help')}"
            )
        return RepairPlan(
            refusal=f"the metadata store has no cookie of {evidence.expected.bookie_host}: is `metadata` in the "
            "configuration right, and does the bookie have the id and the address that it always had? If it was "
            f"decommissioned, empty its disks and see {plain_command('init', '--help')}"
        )
    try:
        stored = cookies.decode(evidence.stored.value)
    except EncodingError as error:
        return RepairPlan(refusal=f"the cookie in the metadata store cannot be read: {error}")
    for name, ours, theirs in (
        ("instanceId", evidence.instance_id, stored.instance_id),
        ("bookieHost", evidence.expected.bookie_host, stored.bookie_host),
    ):
        if ours != theirs:
            return RepairPlan(
                refusal=f"{name} of the cookie in the metadata store is {theirs}, expected {ours}"
            )
    if evidence.store_rollback:
        return RepairPlan(
            refusal=f"the metadata store is an older copy of itself: {evidence.store_rollback}. Put the newest one "
            "back. If there is none, ledgers that were made or closed since are not in it, and what it does not name "
            f"is collected; to go on with it: {bookie_command('cookie', 'repair', '--accept-older-metadata')}"
        )
    steps: list[str] = []
    for item in evidence.directories:
        if item.state in NEVER_WRITTEN_TO:
            return RepairPlan(
                refusal=f"{item.path} is not a disk of this bookie: {item.detail}. Mount the right disk there, or "
                "empty the directory if nothing in it is needed"
            )
        steps += _steps_for(evidence, stored, item)
    for path in removed(evidence, stored):
        steps.append(f"treat {path} as lost: it is not in the configuration any more")
    if cookies.differences(evidence.expected, stored) or steps:
        steps.append(
            "write the cookie of the configuration to the disks that have one and to the metadata store"
        )
    return RepairPlan(steps)


def _steps_for(evidence: Evidence, stored: Cookie, item: Directory) -> list[str]:
    if item.state is DirState.BYPASSED:
        return [
            f"take {item.path} in again as if its host had crashed: at the next start its ledgers are fenced and in "
            f"limbo until every entry was compared with peers ({item.detail})"
        ]
    if item.state is DirState.PAST:
        return [
            f"take {item.path} in as a lost disk, with what is on it: at the next start its ledgers, and every ledger "
            f"that may have been on it, are fenced and in limbo until their entries are back from peers ({item.detail})"
        ]
    if item.state is DirState.STALE:
        return [f"rewrite VERSION on {item.path} ({item.detail})"]
    if item.state is not DirState.EMPTY:
        return []
    if item is evidence.journal:
        return [
            f"prepare the journal directory {item.path}; disks that were not stopped cleanly count as damaged"
        ]
    if str(item.path) in cookies.directories(stored.ledger_dirs):
        return [
            f"prepare {item.path} as the replacement of a lost disk: at the next start every ledger that may "
            "have been on it is fenced and in limbo until its entries are back from peers"
        ]
    return [f"prepare {item.path} as a new disk"]


def removed(evidence: Evidence, stored: Cookie) -> list[str]:
    """Disks that the stored cookie names, the configuration does not, and with which data may have been lost."""
    known = {str(item.path) for item in evidence.disks} | evidence.let_go
    return [path for path in cookies.directories(stored.ledger_dirs) if path not in known]
