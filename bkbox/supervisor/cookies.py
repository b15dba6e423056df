"""Cookies: whether the disks, the metadata store and the configuration speak of the same bookie.

A cookie in BookKeeper's own format (wire/cookie.py) stands in the metadata store and as ``VERSION`` in every data disk
and journal directory. Each directory also has an identity of its own (``DISK``: uuid, bookie, cluster), which tells an
emptied directory, another bookie's disk and another cluster's disk apart.

What is found is judged by pure functions; nothing is written but by apply_repair() and stamp(). The rules of repair:

- a directory that the stored cookie names and that is empty now was lost: it is prepared anew and marked 'replaced',
  so that the next start goes through phase one and stamps ``VERSION`` only afterwards;
- an empty directory that the stored cookie does not name is new: nothing was lost with it;
- whatever else may have been lost (a ``VERSION`` that vanished alone, a disk taken out of the configuration, a journal
  that is gone under disks that were not stopped cleanly) is recorded in the dirty markers first, which makes the
  next start a host crash;
- a directory of another bookie or another cluster, or one that holds something else, is never written to.

A disk that was taken out, or replaced by another, and comes back later is out of date: it knows nothing of the fences
and entries of the time between. Its files look as good as ever. So every repair raises the version of the metadata
store's cookie, and each directory that took part in it holds that version (``EPOCH``; none means 0, that of
`bkbox init`); one that holds an older version is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from uuid import UUID, uuid4

from bkbox.config import Config
from bkbox.errors import DiskError, EncodingError, OperatorError
from bkbox.ids import BookieId
from bkbox.metadata import connect
from bkbox.metadata.base import MetadataStore, Versioned
from bkbox.storage import marker as markers
from bkbox.storage.disk import format_disk
from bkbox.storage.files import Files, RealFiles, write_atomic
from bkbox.storage.identity import DISK_NAME, DiskIdentity, read_identity, write_identity
from bkbox.storage.lock import LOCK_NAME, DiskLock
from bkbox.storage.marker import MARKER_NAME
from bkbox.storage.sealed import read_document, write_document
from bkbox.wire import cookie as cookies
from bkbox.wire.cookie import Cookie

VERSION_NAME = "VERSION"
EPOCH_NAME = "EPOCH"
_EPOCH_FORMAT = 1

_NOT_DATA = frozenset(
    {
        *(LOCK_NAME, MARKER_NAME, f"{MARKER_NAME}.new", f"{DISK_NAME}.new"),
        *(EPOCH_NAME, f"{EPOCH_NAME}.new", "lost+found", "admin.sock"),
    }
)
"""What may stand in a directory that counts as empty: a repair that was interrupted leaves some of these."""

_WRITTEN_BY_INIT = _NOT_DATA | {DISK_NAME, VERSION_NAME, f"{VERSION_NAME}.new"}


class DirState(Enum):
    """What a directory turned out to be."""

    GOOD = "good"
    EMPTY = "empty"
    REPLACED = "replaced, to be stamped after phase one"
    STALE = "its VERSION is missing, unreadable or differs"
    OUTDATED = "out of date"
    FOREIGN = "foreign"
    STRANGE = "not empty and not a disk of bkbox"
    UNREADABLE = "unreadable"


_NEVER_WRITTEN_TO = (DirState.OUTDATED, DirState.FOREIGN, DirState.STRANGE, DirState.UNREADABLE)


@dataclass(frozen=True, slots=True)
class Directory:
    """One data disk or journal directory as it was found."""

    path: Path
    state: DirState
    detail: str = ""
    version: bytes | None = None
    identity: DiskIdentity | None = None
    epoch: int = 0


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
    """What a repair would do, in words; ``refusal`` says why it must not be done."""

    steps: list[str] = field(default_factory=list)
    refusal: str | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a judgement needs."""

    expected: Cookie
    instance_id: str
    stored: Versioned[bytes] | None
    disks: tuple[Directory, ...]
    journal: Directory | None

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


# ---- looking ----------------------------------------------------------------------------------------


def look_at(files: Files, path: Path, expected: Cookie, instance_id: str) -> Directory:
    """Judge one directory."""
    try:
        names = files.listdir(path) if files.exists(path) else []
        identity = read_identity(files, path)
        version = files.read_bytes(path / VERSION_NAME)
    except DiskError as error:
        return Directory(path, DirState.UNREADABLE, str(error))
    if identity is None:
        if version is None and set(names) <= _NOT_DATA:
            return Directory(
                path,
                DirState.EMPTY,
                "the directory is empty" if names else "there is nothing in it",
            )
        detail = f"it has no {DISK_NAME} file but holds {', '.join(names[:5])}"
        return Directory(path, DirState.STRANGE, detail, version)
    for name, ours, theirs in (
        ("bookieHost", expected.bookie_host, identity.bookie_id),
        ("instanceId", instance_id, identity.instance_id),
    ):
        if ours != theirs:
            detail = f"{name} of its {DISK_NAME} file is {theirs}, expected {ours}"
            return Directory(path, DirState.FOREIGN, detail, version, identity)
    compared = _compare_version(files, path, expected, version, identity)
    return replace(compared, epoch=_read_epoch(files, path))


def _read_epoch(files: Files, path: Path) -> int:
    """0 where it is missing or cannot be read: the oldest there is."""
    try:
        fields = read_document(files, path / EPOCH_NAME, _EPOCH_FORMAT)
        return int(fields["epoch"]) if fields is not None else 0
    except (DiskError, KeyError, ValueError, TypeError):
        return 0


def _write_epoch(files: Files, path: Path, epoch: int) -> None:
    write_document(files, path / EPOCH_NAME, _EPOCH_FORMAT, {"epoch": epoch})


def _in_time(item: Directory, stored: Versioned[bytes] | None) -> Directory:
    """The directory, or that it is out of date."""
    ours = item.state in (DirState.GOOD, DirState.STALE, DirState.REPLACED)
    if stored is None or not ours or item.epoch >= stored.version:
        return item
    detail = (
        "it was not in use when the cookies were repaired and knows nothing of what happened since "
        f"(its {EPOCH_NAME} is {item.epoch}, expected {stored.version})"
    )
    return replace(item, state=DirState.OUTDATED, detail=detail)


def _compare_version(
    files: Files, path: Path, expected: Cookie, version: bytes | None, identity: DiskIdentity
) -> Directory:
    if version is None:
        marker = markers.read_marker(files, path)
        if marker is not None and marker.replaced:
            return Directory(
                path, DirState.REPLACED, "it stands in for a lost disk", None, identity
            )
        return Directory(path, DirState.STALE, "its VERSION file is missing", None, identity)
    try:
        found = cookies.decode(version)
    except EncodingError as error:
        return Directory(
            path, DirState.STALE, f"its VERSION file cannot be read: {error}", version, identity
        )
    differing = cookies.differences(expected, found)
    for difference in differing:
        if difference.field in ("bookieHost", "instanceId"):
            detail = f"{difference.field} of its VERSION file is {difference.stored}, expected {difference.config}"
            return Directory(path, DirState.FOREIGN, detail, version, identity)
    if differing:
        first = differing[0]
        detail = f"{first.field} of its VERSION file is {first.stored}, expected {first.config}"
        return Directory(path, DirState.STALE, detail, version, identity)
    return Directory(path, DirState.GOOD, "", version, identity)


async def gather(config: Config, store: MetadataStore, files: Files) -> Evidence:
    """Look at everything."""
    instance_id = await store.instance_id()
    expected = expected_cookie(config, instance_id)
    stored = await store.read_cookie(BookieId(config.bookie_id))

    def judged(path: Path) -> Directory:
        return _in_time(look_at(files, path, expected, instance_id), stored)

    return Evidence(
        expected,
        instance_id,
        stored,
        tuple(map(judged, config.disks)),
        judged(config.journal) if config.journal else None,
    )


# ---- judging ----------------------------------------------------------------------------------------


def judge(evidence: Evidence, config_path: str) -> CookieReport:
    """Compare metadata, directories and configuration."""
    found: list[Difference] = []
    stored_text = None
    if evidence.stored is None:
        found.append(Difference("metadata", "cookie", "a cookie of this bookie", "(none)"))
    else:
        stored_text = evidence.stored.value.decode("utf-8", "replace")
        found += _metadata_differences(evidence.expected, evidence.stored.value)
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
            None if item.state is DirState.GOOD else _fix(item, plan, config_path),
        )
        for item in evidence.directories
    ]
    return CookieReport(
        ok, stored_text, disks, found, "" if ok else _advice(evidence, plan, config_path)
    )


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


def _fix(directory: Directory, plan: RepairPlan, config_path: str) -> str:
    if directory.state is DirState.REPLACED:
        return "start the bookie: phase one fences its ledgers, then VERSION is stamped"
    if plan.refusal is not None:
        return plan.refusal
    return f"bkbox cookie repair --config {config_path}"


def _advice(evidence: Evidence, plan: RepairPlan, config_path: str) -> str:
    if plan.refusal is not None:
        return plan.refusal
    return f"run: bkbox cookie repair --config {config_path}"


def plan_of(evidence: Evidence) -> RepairPlan:
    """What a repair does, or why there must be none."""
    if evidence.stored is None:
        if all(item.state is DirState.EMPTY for item in evidence.directories):
            return RepairPlan(refusal="this bookie is not known yet: run bkbox init")
        return RepairPlan(
            refusal="the metadata store has no cookie of this bookie: is `metadata` in the configuration right? If the "
            "bookie was decommissioned, empty its disks and run bkbox init"
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
    steps: list[str] = []
    for item in evidence.directories:
        if item.state in _NEVER_WRITTEN_TO:
            return RepairPlan(
                refusal=f"{item.path} is not a disk of this bookie: {item.detail}. Mount the right disk there, or "
                "empty the directory if nothing in it is needed"
            )
        steps += _steps_for(evidence, stored, item)
    for path in _removed(evidence, stored):
        steps.append(f"treat {path} as lost: it is not in the configuration any more")
    if cookies.differences(evidence.expected, stored) or steps:
        steps.append(
            "write the cookie of the configuration to the disks that have one and to the metadata store"
        )
    return RepairPlan(steps)


def _steps_for(evidence: Evidence, stored: Cookie, item: Directory) -> list[str]:
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


def _removed(evidence: Evidence, stored: Cookie) -> list[str]:
    configured = {str(item.path) for item in evidence.disks}
    return [path for path in cookies.directories(stored.ledger_dirs) if path not in configured]


# ---- writing ----------------------------------------------------------------------------------------


def prepare(files: Files, evidence: Evidence, item: Directory, uuid: UUID) -> None:
    """Make a data disk or a journal directory out of an empty directory."""
    identity = DiskIdentity(uuid, str(evidence.expected.bookie_host), evidence.instance_id)
    files.mkdir(item.path)
    if item is evidence.journal:
        write_identity(files, item.path, identity)
    else:
        format_disk(files, item.path, identity)


def stamp(files: Files, path: Path, expected: Cookie) -> None:
    """Write VERSION durably."""
    write_atomic(files, path / VERSION_NAME, cookies.encode(expected))


async def write_to_metadata(store: MetadataStore, evidence: Evidence) -> None:
    """Bring the metadata store's cookie up to the configuration, if it differs."""
    data = cookies.encode(evidence.expected)
    version = evidence.stored.version if evidence.stored is not None else None
    if evidence.stored is None or evidence.stored.value != data:
        await store.write_cookie(BookieId(str(evidence.expected.bookie_host)), data, version)


async def carry_out(evidence: Evidence, store: MetadataStore, files: Files) -> None:
    """Do what plan_of() said. What a crash in between must not forget is written first.

    The metadata store comes before the empty directories: as long as they are empty a start is refused, so none can
    come between a disk's replacement and the epoch that bars the old one.
    """
    assert evidence.stored is not None
    stored = cookies.decode(evidence.stored.value)
    epoch = evidence.stored.version + 1
    losses = [
        f"disk {path} was taken out of the configuration" for path in _removed(evidence, stored)
    ]
    for item in evidence.disks:
        if item.state is DirState.STALE and item.version is None:
            markers.record_failure(files, item.path, "VERSION was missing")
        if item.state in (DirState.GOOD, DirState.STALE):
            for loss in losses:
                markers.record_failure(files, item.path, loss)
            if (
                _journal_gone(evidence, stored)
                and markers.read_marker(files, item.path) is not None
            ):
                markers.record_failure(files, item.path, "the journal was lost")
    for item in evidence.directories:
        if item.state is not DirState.EMPTY:
            _write_epoch(files, item.path, epoch)
    bookie = BookieId(str(evidence.expected.bookie_host))
    await store.write_cookie(bookie, cookies.encode(evidence.expected), evidence.stored.version)
    lost = set(cookies.directories(stored.ledger_dirs))
    for item in evidence.directories:
        if item.state is DirState.EMPTY:
            files.mkdir(item.path)
            if item is not evidence.journal and str(item.path) in lost:
                markers.mark_replaced(files, item.path)
            _write_epoch(files, item.path, epoch)
            prepare(files, evidence, item, uuid4())
    for item in evidence.directories:
        held_back = item.state is DirState.EMPTY and str(item.path) in lost
        if not held_back and item.state is not DirState.REPLACED:
            stamp(files, item.path, evidence.expected)


def _journal_gone(evidence: Evidence, stored: Cookie) -> bool:
    moved = (stored.journal_dir or "") != (evidence.expected.journal_dir or "")
    return moved or (evidence.journal is not None and evidence.journal.state is DirState.EMPTY)


# ---- for the commands -------------------------------------------------------------------------------


async def inspect(config: Config) -> CookieReport:
    """What `bkbox cookie show` and `verify` print; changes nothing."""
    async with await connect(config.metadata) as store:
        return judge(await gather(config, store, RealFiles()), str(config.path))


async def plan_repair(config: Config) -> RepairPlan:
    """What `bkbox cookie repair` would do; changes nothing."""
    async with await connect(config.metadata) as store:
        return plan_of(await gather(config, store, RealFiles()))


async def apply_repair(config: Config) -> None:
    """Repair, under the locks of the disks. Raises BookieRunningError, OperatorError."""
    files = RealFiles()
    held = lock_all(config, files, create=True)
    try:
        async with await connect(config.metadata) as store:
            evidence = await gather(config, store, files)
            plan = plan_of(evidence)
            if plan.refusal is not None:
                raise OperatorError(plan.refusal)
            await carry_out(evidence, store, files)
    finally:
        for lock in held.values():
            lock.release()


def lock_all(config: Config, files: Files, *, create: bool) -> dict[Path, DiskLock]:
    """Lock every directory of the bookie, or none. Raises BookieRunningError, DiskError.

    Without ``create`` a missing directory is left alone: it may be a mount that is not there.
    """
    held: dict[Path, DiskLock] = {}
    try:
        for path in (*config.disks, *((config.journal,) if config.journal else ())):
            if create:
                files.mkdir(path)
            if files.exists(path):
                held[path] = DiskLock(path)
    except (DiskError, OperatorError):
        for lock in held.values():
            lock.release()
        raise
    return held


def only_from_init(files: Files, path: Path) -> bool:
    """Whether a directory holds nothing but what `bkbox init` writes."""
    return not files.exists(path) or set(files.listdir(path)) <= _WRITTEN_BY_INIT
