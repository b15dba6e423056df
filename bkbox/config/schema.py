"""The configuration schema: the fields of ``Config``, with their units in the names.

How a configuration is read and written: load.py.
"""

from __future__ import annotations

import os
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from bkbox.base import limits
from bkbox.base.ids import BookieId, bookie_id
from bkbox.base.text import quoted
from bkbox.config import metadata_uri
from bkbox.config.security import SecurityKeys
from bkbox.config.values import (
    Choice,
    File,
    Flag,
    Folder,
    Folders,
    Kind,
    Number,
    Text,
    Whole,
    require_unicode,
    split_address,
)
from bkbox.config.values import key as _key
from bkbox.errors import InvalidIdError

_MIB = 1 << 20
_GIB = 1 << 30
_TIB = 1 << 40
_DAY_S = 86_400.0
_YEAR_S = 365 * _DAY_S


def metadata_uri_problem(uri: str) -> str | None:
    """The problem with the URI of a metadata store; None if it can be used."""
    try:
        metadata_uri.parse(uri)
    except metadata_uri.WrongUriError as error:
        return str(error)
    return None


def _listen_problem(text: str) -> str | None:
    return None if split_address(text) else "has to be HOST:PORT, for example 10.0.0.5:3181"


def _host_problem(text: str) -> str | None:
    plain = not any(character in text for character in " /[]")
    return None if plain else "has to be a host name or an address, without a port"


def bookie_id_problem(text: str) -> str | None:
    """The problem with a bookie id; None if it is allowed."""
    try:
        bookie_id(text)
    except InvalidIdError as error:
        return str(error)
    if text in (".", ".."):  # BookKeeper would accept these, but no znode can have such a name
        return f"bookie id {quoted(text)} cannot be a name in a metadata store"
    return None


def default_frontends(disks: int, cores: int) -> int:
    """Front-end processes where the configuration names no number.

    A front-end and the workers behind it compute side by side, and so do the supervisor, the repair worker and the
    clients on the host: with fewer than eight cores a second front-end takes the time of a worker. With one disk one
    front-end keeps its worker busy.
    """
    return max(1, min(disks, cores // 4, limits.FRONTENDS_MAX))


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(SecurityKeys):
    """A bookie's configuration, checked as a whole; made by ``load``.

    ``provenance`` has the source of every key's value: ``default``, ``FILE:LINE`` or
    ``environment variable NAME``.
    """

    listen: str = field(
        metadata=_key(
            Text(_listen_problem),
            "HOST:PORT where clients reach the bookie; port 0 takes a free one.",
        )
    )
    advertised_host: str = field(
        metadata=_key(
            Text(_host_problem),
            "Host name or address published for clients. Default: the host of listen.",
            "",
        )
    )
    bookie_id: BookieId = field(
        metadata=_key(
            Text(bookie_id_problem),
            "Name of the bookie in the metadata store. Default: advertised host and port.",
            "",
        )
    )
    metadata: str = field(
        metadata=_key(
            Text(metadata_uri_problem), f"Metadata store of the cluster: {metadata_uri.FORMS}."
        )
    )
    metadata_wait_s: float = field(
        metadata=_key(
            Number(0.1, _DAY_S),
            "Seconds that a start, and each question to the metadata store, waits for a store that "
            "is away.",
            30.0,
        )
    )
    metadata_lost_s: float = field(
        metadata=_key(
            Number(0.1, _DAY_S),
            "Seconds after which a bookie that has lost its registration takes no new ledgers.",
            30.0,
            live=True,
        )
    )
    disks: tuple[Path, ...] = field(
        metadata=_key(Folders(), "Folders of the data disks, one per disk.")
    )
    journal: Path | None = field(
        metadata=_key(
            Folder(), "Folder of the journal, for ack_after = journal; empty for none.", ""
        )
    )
    ack_after: Literal["sync", "write", "journal"] = field(
        metadata=_key(
            Choice("sync", "write", "journal"),
            "An entry is acknowledged after a sync of the entry log, a write to it, or a sync of "
            "the journal.",
            "sync",
        )
    )
    frontends: int = field(
        metadata=_key(
            Whole(0, limits.FRONTENDS_MAX),
            "Front-end processes, which share the port; 0: as many as disks, at most one for each four "
            "processor cores.",
            0,
        )
    )
    readonly_while_in_limbo: bool = field(
        metadata=_key(Flag(), "Take no new ledgers while any ledger is in limbo.", False, live=True)
    )
    auto_fix_cookies: bool = field(
        metadata=_key(
            Flag(), "Repair cookies at start instead of refusing; see `bkbox cookie repair`.", False
        )
    )
    strict_unclean_shutdown: bool = field(
        metadata=_key(
            Flag(), "Treat the crash of a process like the crash of the host.", False, live=True
        )
    )
    segment_bytes_max: int = field(
        metadata=_key(
            Whole(4096, 4 * _GIB - 1),
            "Bytes of an entry log segment.",
            limits.SEGMENT_BYTES_MAX_DEFAULT,
        )
    )
    checkpoint_bytes: int = field(
        metadata=_key(
            Whole(4096, _TIB),
            "Bytes of entry log between two checkpoints: what a start after a crash "
            "has to read again, at most.",
            limits.CHECKPOINT_BYTES_DEFAULT,
        )
    )
    frame_bytes_max: int = field(
        metadata=_key(
            Whole(1024, limits.RECORD_BODY_BYTES_MAX),
            "Largest frame on the wire, in bytes.",
            limits.FRAME_BYTES_MAX,
            live=True,
        )
    )
    connection_inflight_bytes_max: int = field(
        metadata=_key(
            Whole(1024, _GIB), "Bytes of requests under way per connection.", 8 * _MIB, live=True
        )
    )
    slow_operation_ms: int = field(
        metadata=_key(
            Whole(0, 3_600_000),
            "A batch of requests that takes longer is logged, with the stages of its way; 0: none is.",
            1_000,
            live=True,
        )
    )
    disk_usage_max: float = field(
        metadata=_key(
            Number(0.01, 1.0),
            "Share of a disk in use at which it takes no new entries.",
            0.95,
            live=True,
        )
    )
    disk_reserve_bytes: int = field(
        metadata=_key(
            Whole(0, _TIB),
            "Bytes kept back on each disk, so that a full one can still be tidied.",
            64 * _MIB,
            live=True,
        )
    )
    disk_usage_resume: float = field(
        metadata=_key(
            Number(0.0, 1.0),
            "Share of a disk in use below which it takes new entries again; 0: two hundredths below "
            "disk_usage_max.",
            0.0,
            live=True,
        )
    )
    gc_interval_s: float = field(
        metadata=_key(
            Number(0.0, _YEAR_S),
            "Seconds between two searches for ledgers that were deleted; 0: never by itself.",
            900.0,
        )
    )
    gc_confirm_s: float = field(
        metadata=_key(
            Number(0.0, _DAY_S),
            "Seconds after which a ledger that seems to be deleted is checked again, before anything is "
            "done.",
            300.0,
        )
    )
    gc_trash_s: float = field(
        metadata=_key(
            Number(0.0, _YEAR_S),
            "Seconds that the entries of a deleted ledger are kept, so that a mistake can be undone.",
            _DAY_S,
        )
    )
    gc_remember_s: float = field(
        metadata=_key(
            Number(0.0, 100 * _YEAR_S),
            "Seconds that it is remembered that a ledger was deleted: adds to it are refused.",
            30 * _DAY_S,
        )
    )
    gc_overreplicated_s: float = field(
        metadata=_key(
            Number(0.0, _YEAR_S),
            "Seconds within which every ledger here is checked once for whether this bookie is still to hold it; "
            "0: never.",
            _DAY_S,
        )
    )
    compaction_interval_s: float = field(
        metadata=_key(
            Number(0.0, _YEAR_S),
            "Seconds between two searches for segments to be compacted; 0: never by itself.",
            3_600.0,
        )
    )
    compaction_garbage_ratio: float = field(
        metadata=_key(
            Number(0.01, 1.0),
            "Share of a segment that has to be garbage before what is live is moved out of it.",
            0.5,
        )
    )
    scrub_interval_s: float = field(
        metadata=_key(
            Number(0.0, _YEAR_S),
            "Seconds from the end of a scrub of all disks to the start of the next; 0: never by itself.",
            7 * _DAY_S,
        )
    )
    restart_backoff_initial_s: float = field(
        metadata=_key(
            Number(0.001, _DAY_S), "Seconds before a process that died is started again.", 0.1
        )
    )
    restart_backoff_max_s: float = field(
        metadata=_key(
            Number(0.001, _DAY_S), "Longest such wait; it doubles with each death in a row.", 10.0
        )
    )
    stop_timeout_s: float = field(
        metadata=_key(
            Number(0.1, _DAY_S),
            "Seconds for an ordered stop before processes are killed.",
            30.0,
            live=True,
        )
    )
    repair_entries_in_flight: int = field(
        metadata=_key(Whole(1, 65_536), "Entries that repair reads from peers at once.", 64)
    )
    repair_retry_initial_s: float = field(
        metadata=_key(
            Number(0.001, _DAY_S),
            "Seconds before a ledger that could not be repaired is tried again.",
            1.0,
        )
    )
    repair_retry_max_s: float = field(
        metadata=_key(
            Number(0.001, _DAY_S), "Longest such wait; it doubles with each failure in a row.", 60.0
        )
    )
    repair_ledgers_at_once: int = field(
        metadata=_key(Whole(1, 1024), "Ledgers that are repaired at the same time.", 4)
    )
    autorecovery_enabled: bool = field(
        metadata=_key(
            Flag(),
            "Take part in autorecovery: stand for auditor of the cluster, and copy what other bookies have lost.",
            False,
        )
    )
    autorecovery_lost_bookie_delay_s: int = field(
        metadata=_key(
            Whole(0, int(_DAY_S)),
            "Seconds that a single lost bookie is waited for, where the cluster does not say otherwise.",
            60,
        )
    )
    autorecovery_open_ledger_grace_s: float = field(
        metadata=_key(
            Number(0.0, _DAY_S),
            "Seconds that the writer of an open ledger has to replace a lost bookie before it is fenced.",
            30.0,
        )
    )
    autorecovery_full_check_interval_s: float = field(
        metadata=_key(
            Number(0.0, _YEAR_S),
            "Seconds between two checks of all entries of all ledgers of the cluster; 0 for never.",
            7 * _DAY_S,
        )
    )
    jobs_disk_bytes_per_second: int = field(
        metadata=_key(
            Whole(0, _TIB),
            "What all jobs together (repair, collection, scrub, …) may read and write on the disks; 0 for "
            "no bound.",
            0,
            live=True,
        )
    )
    jobs_network_bytes_per_second: int = field(
        metadata=_key(
            Whole(0, _TIB), "What they may bring from other bookies; 0 for no bound.", 0, live=True
        )
    )
    jobs_metadata_calls_per_second: int = field(
        metadata=_key(
            Whole(0, 1_000_000),
            "How often they may ask the metadata store; 0 for no bound.",
            1_000,
            live=True,
        )
    )
    jobs_p99_growth_max: float = field(
        metadata=_key(
            Number(1.0, 1_000_000.0),
            "How many times as long adds may take (p99) while jobs run; beyond it the jobs get less.",
            1.5,
            live=True,
        )
    )
    topology_script: Path | None = field(
        metadata=_key(
            File(),
            "Program that tells the racks of hosts, for recoveries that need other bookies; empty "
            "for none.",
            "",
        )
    )
    rack_map: str = field(
        metadata=_key(
            Text(lambda _text: None),
            "The same from a JSON map of racks: a file, or znode:PATH in ZooKeeper; empty for none.",
            "",
        )
    )
    log_level: Literal["debug", "info", "warning", "error"] = field(
        metadata=_key(
            Choice("debug", "info", "warning", "error"),
            "Least level of messages in the log.",
            "info",
            live=True,
        )
    )
    log_format: Literal["console", "json"] = field(
        metadata=_key(
            Choice("console", "json"),
            "The log for people, or a JSON object a line; under systemd's journal either has priorities.",
            "console",
        )
    )
    announce: bool = field(
        metadata=_key(
            Flag(),
            "Say on the network of advertised_host, by mDNS, that the bookie is there, for `bkbox discover`; nothing "
            "depends on it.",
            False,
        )
    )
    http_listen: str = field(
        metadata=_key(
            Text(_listen_problem),
            "HOST:PORT of the admin API, metrics and health checks over HTTP, for callers with a token; empty: none. "
            "Another address than 127.0.0.1 needs http_tls.",
            "",
        )
    )
    http_token_file: Path | None = field(
        metadata=_key(
            File(),
            "File with the token that may do everything over http_listen; its mode has to be 0600.",
            "",
        )
    )
    http_read_token_file: Path | None = field(
        metadata=_key(
            File(),
            "File with another token that may only read, for metrics and probes; empty for none.",
            "",
        )
    )
    metrics_java_names: bool = field(
        metadata=_key(
            Flag(),
            "Show metrics also under the names that dashboards of Apache's bookie use.",
            False,
            live=True,
        )
    )
    run_dir: Path | None = field(
        metadata=_key(Folder(), "Folder of the admin socket; empty for the first disk.", "")
    )

    path: Path
    provenance: dict[str, str]

    @property
    def listen_host(self) -> str:
        return address_of(self.listen)[0]

    @property
    def listen_port(self) -> int:
        return address_of(self.listen)[1]

    @property
    def frontend_count(self) -> int:
        """The number of front-end processes."""
        return self.frontends or default_frontends(len(self.disks), len(os.sched_getaffinity(0)))

    def values(self) -> dict[str, object]:
        """Every key with its value in the form of TOML and JSON: paths as text."""
        return {name: kind_of(item).to_toml(getattr(self, name)) for name, item in SCHEMA.items()}


_OF_SECURITY = {item.name for item in fields(SecurityKeys)}

SCHEMA: dict[str, Field[Any]] = {
    item.name: item
    for item in sorted(fields(Config), key=lambda item: item.name in _OF_SECURITY)
    if item.metadata
}
"""The keys, in the order in which they are written: those of security last."""


def kind_of(item: Field[Any]) -> Kind:
    """The kind of values that a key takes."""
    kind = item.metadata["kind"]
    assert isinstance(kind, Kind)
    return kind


def is_live(item: Field[Any]) -> bool:
    """True if a running bookie can apply a change of the key."""
    return bool(item.metadata["live"])


def checked(item: Field[Any], value: object) -> object:
    """Converts a value in the form of TOML to the one for ``Config``. Raises WrongValueError."""
    if value == "" and item.metadata["default"] == "":
        return kind_of(item).empty
    found = kind_of(item).check(value)
    require_unicode(value)
    return found


def address_of(listen: str) -> tuple[str, int]:
    """Host and port of a checked ``listen``."""
    address = split_address(listen)
    assert address is not None
    return address
