"""The status document: what a bookie says about itself, to the CLI, the terminal screen and scripts
alike.

Contract: one document, one schema number. ``to_json`` and ``from_json`` are inverse to each other.
Keys that a reader does not know are skipped, so that a field may be added under the same schema
number; a field that changes its meaning, or goes, takes a new number, and a reader refuses numbers
it does not know.

Sizes are bytes, times are seconds.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from bkbox.errors import EncodingError

SCHEMA_VERSION = 1

BookieState = Literal["starting", "running", "stopping", "stopped", "refused"]
CrashClass = Literal[
    "clean",
    "process crash",
    "host crash",
    "disk lost",
    "disk replaced",
    "foreign disk",
    "unknown",
]
DiskState = Literal["in service", "out of service", "failed"]
Role = Literal["supervisor", "frontend", "worker", "repair"]


@dataclass(frozen=True, slots=True)
class Boot:
    """How far the start has come, and what made it go that way."""

    phase: str
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Replay:
    """What the last start read again from a disk's logs; ``damaged`` counts ranges that could not
    be read.
    """

    records: int = 0
    entries: int = 0
    bytes: int = 0
    cut_bytes: int = 0
    damaged: int = 0


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage on the way of the adds of a disk (queue, append, index, fsync, reply), since its worker
    began: how many adds there were and how long it took them, in microseconds.
    """

    stage: str
    count: int
    p50_us: int
    p99_us: int
    p999_us: int
    max_us: int


@dataclass(frozen=True, slots=True)
class DiskStatus:
    """One data disk: what the last start found (``crash_class`` and why) and how it is now.

    ``disk`` is the disk's uuid, ``read_only`` the named reasons for which it takes no entries
    (empty: it takes them).
    """

    path: str
    disk: str
    crash_class: CrashClass
    reason: str
    state: DiskState
    ledgers: int
    limbo_ledgers: int
    free_bytes: int
    total_bytes: int
    read_only: tuple[str, ...] = ()
    replay: Replay = Replay()
    stages: tuple[Stage, ...] = ()


@dataclass(frozen=True, slots=True)
class Process:
    """One process of the bookie; ``restarts`` since the supervisor started."""

    role: Role
    name: str
    pid: int
    restarts: int
    running: bool


@dataclass(frozen=True, slots=True)
class Blocker:
    """A ledger that cannot leave limbo by itself, why, and what the operator can do."""

    ledger: int
    reason: str
    what_to_do: str


@dataclass(frozen=True, slots=True)
class Limbo:
    """Repair: ``ledgers`` are in limbo now, ``done`` have left it since the start; the counts are
    since the start. ``eta_s`` is None where nothing can be said.
    """

    ledgers: int = 0
    done: int = 0
    entries_checked: int = 0
    entries_missing: int = 0
    entries_copied: int = 0
    bytes_copied: int = 0
    eta_s: float | None = None
    blockers: tuple[Blocker, ...] = ()


@dataclass(frozen=True, slots=True)
class StatusWarning:
    """Something the operator ought to know, and the command that mends it ("" where there is none)."""

    text: str
    command: str = ""


@dataclass(frozen=True, slots=True)
class Status:
    """The whole document. ``kernel`` says which implementation of the inner loops runs."""

    version: str
    bookie_id: str
    instance_id: str
    listen: str
    state: BookieState
    writable: bool
    ack_after: str
    boot: Boot
    read_only_reasons: tuple[str, ...] = ()
    disks: tuple[DiskStatus, ...] = ()
    processes: tuple[Process, ...] = ()
    limbo: Limbo = Limbo()
    warnings: tuple[StatusWarning, ...] = ()
    kernel: str = "interpreted"
    schema: int = SCHEMA_VERSION


def to_json(status: Status) -> dict[str, Any]:
    """The document as what ``json.dumps`` takes."""
    return asdict(status)


def from_json(document: object) -> Status:
    """Read what ``json.loads`` gave. Raises EncodingError naming the place that is wrong."""
    if not isinstance(document, Mapping):
        raise EncodingError(f"status: expected an object, found {_kind(document)}")
    if document.get("schema") != SCHEMA_VERSION:
        raise EncodingError(
            f"status has schema {document.get('schema')!r} and this version reads {SCHEMA_VERSION}:"
            " the bookie that answers runs another version of bkbox"
        )
    return _object(Status, document, "status")


T = TypeVar("T")


def _object(cls: type[T], value: object, where: str) -> T:
    """Build a dataclass from a mapping by its annotations, checking every value on the way."""
    if not isinstance(value, Mapping):
        raise EncodingError(f"{where}: expected an object, found {_kind(value)}")
    known = get_type_hints(cls)
    names = [field.name for field in fields(cast(Any, cls))]
    missing = [name for name in names if name not in value]
    if missing:
        raise EncodingError(f"{where}: {', '.join(missing)} is missing")
    return cls(**{name: _value(known[name], value[name], f"{where}.{name}") for name in names})


def _value(annotation: Any, value: object, where: str) -> Any:
    """Check a value against the few kinds of annotation that the document uses."""
    if is_dataclass(annotation):
        return _object(cast(type, annotation), value, where)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is tuple and isinstance(value, (list, tuple)):
        items = enumerate(value)
        return tuple(_value(arguments[0], item, f"{where}[{number}]") for number, item in items)
    if origin is Literal and value in arguments:
        return value
    if origin in (Union, types.UnionType):
        return None if value is None else _value(arguments[0], value, where)
    if annotation is float and type(value) in (int, float):
        return value
    if isinstance(annotation, type) and type(value) is annotation:
        return value
    raise EncodingError(f"{where}: {value!r} is not {_name(annotation)}")


def _name(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return "one of " + ", ".join(map(repr, get_args(annotation)))
    return getattr(annotation, "__name__", str(annotation))


def _kind(value: object) -> str:
    return type(value).__name__
