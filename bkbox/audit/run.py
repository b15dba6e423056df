"""An audit of a whole cluster: plans the chunks, executes the job, writes the tables.

The tables are the same with every engine: chunks are cut before an engine is chosen, and their results are merged in
the order of ledgers. ``summary.json`` has the sums, and the duration.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from bkbox import metadata as stores
from bkbox.audit.engine import Engine
from bkbox.audit.job import TABLES, AuditJob, Chunk, Result
from bkbox.audit.judgement import merged_owners, merged_racks, ranges_of
from bkbox.audit.rows import OwnerBytes, RackCopies
from bkbox.audit.selection import parse_select
from bkbox.base.ids import BookieId
from bkbox.client.options import ClientOptions
from bkbox.client.placement.topology import topology_of
from bkbox.errors import OperatorError
from bkbox.metadata.base import MetadataStore
from bkbox.wire.metadata.service_info import split_bookie_id

CHUNK_LEDGERS = 200
"""Ledgers of one chunk."""

CHUNK_PROBES = 4_000
"""Ids without a ledger that are probed in one chunk."""

GAP_MAX = 1_000_000
"""A longer gap of ids without a ledger is not probed: ids above it were chosen by a client, not drawn."""

SUMMARY = "summary.json"

SUMS = ("copies_per_rack", "bytes_per_owner")

FINDINGS = (
    "no_copy",
    "blocked",
    "missing",
    "corrupt",
    "divergent",
    "unreadable",
    "under_replicated",
    "orphaned",
)
"""The tables whose rows are faults. Not ``limbo``, which repairs itself except for ``blocked``; not ``unknown``, where
no bookie gave evidence; not ``ended``, whose losses were accepted."""


class Progress(Protocol):
    """Shows an operator the progress of a pipeline."""

    def stage(self, name: str, ledgers: int | None) -> None:
        """Starts a stage with this number of ledgers to come; None: not known."""

    def add_progress(self, ledgers: int, size: int) -> None:
        """Adds to the progress of this stage; ``size`` in bytes."""


@dataclass(frozen=True)
class AuditPlan:
    """The work of an audit. ``unprobed_ids``: ids in gaps that are too long, which are not probed."""

    job: AuditJob
    chunks: list[Chunk]
    ledgers: int
    unprobed_ids: int


@dataclass(frozen=True)
class Summary:
    """The sums of an audit; ``rows`` of each table, and the number of entries or ledgers that the rows of ``faults``
    stand for."""

    cluster: str
    engine: str
    started_ms: int
    seconds: float
    bookies: int
    ledgers: int
    entries: int
    copies_read: int
    bytes_read: int
    read_all: bool
    ids_probed: int
    ids_unprobed: int
    rows: dict[str, int]
    faults: dict[str, int]
    unanswered_probes: dict[str, int] = field(default_factory=dict)

    @property
    def is_clean(self) -> bool:
        """True if no fault was found, as far as bookies responded."""
        return not any(self.rows[name] for name in FINDINGS)

    @property
    def is_certain(self) -> bool:
        """True if every bookie responded to everything."""
        return not (self.rows["unknown"] or self.rows["limbo"] or self.unanswered_probes)


async def plan_audit(
    uri: str,
    *,
    read_all: bool,
    orphans: bool,
    rate: int = 0,
    client: Mapping[str, Any] | None = None,
    chunk_ledgers: int = CHUNK_LEDGERS,
    select: str = "",
) -> AuditPlan:
    """Reads the registered bookies, and cuts the ids of all ledgers into chunks. ``rate``: see AuditJob; ``client``:
    fields of ClientOptions; ``select``: only ledgers that fit this condition, and no orphans, which have no metadata.

    With ``orphans`` one ledger id is drawn: it shows which ids have been given out so far. Raises MetadataError,
    ConfigError.
    """
    if select:
        parse_select(select)
        orphans = False
    options = ClientOptions(**(client or {}))
    async with await stores.connect(uri) as store:
        bound = await store.new_ledger_id() if orphans else None
        registered = frozenset(await store.bookies())
        racks = await _racks(store, options)
        runs = [run async for page in store.ledger_ranges() for run in ranges_of(page)]
    chunks, too_long = cut(runs, bound, chunk_ledgers)
    job = AuditJob(uri, registered, racks, read_all, rate, dict(client or {}), select)
    return AuditPlan(job, chunks, sum(chunk.ledger_count for chunk in chunks), too_long)


def cut(
    runs: Iterable[range], bound: int | None, chunk_ledgers: int = CHUNK_LEDGERS
) -> tuple[list[Chunk], int]:
    """All ids below ``bound``, and all ledgers, as chunks in ascending order; and the number of ids in gaps too long to
    be probed. ``runs``: the ids of ledgers, ascending; ``bound`` None: nothing is probed."""
    chunks: list[Chunk] = []
    too_long = 0
    next_id = 0
    for run in [*runs, None]:
        upto = 0 if bound is None else bound if run is None else min(bound, run.start)
        gap = range(next_id, max(next_id, upto))
        if len(gap) > GAP_MAX:
            too_long += len(gap)
        else:
            chunks += [Chunk((), (some,)) for some in batched(gap, CHUNK_PROBES)]
        if run is not None:
            chunks += [Chunk((some,), ()) for some in batched(run, chunk_ledgers)]
            next_id = run.stop
    return _joined(chunks, chunk_ledgers), too_long


def batched(ids: range, size: int) -> Iterator[range]:
    """Splits the ids into ranges of ``size``; the last may be shorter."""
    for start in range(0, len(ids), size):
        yield ids[start : start + size]


def _joined(chunks: Sequence[Chunk], chunk_ledgers: int) -> list[Chunk]:
    """Joins small neighbouring chunks: many gaps must not make many chunks."""
    found: list[Chunk] = []
    for chunk in chunks:
        if found:
            last = found[-1]
            probes = sum(map(len, last.absent)) + sum(map(len, chunk.absent))
            if last.ledger_count + chunk.ledger_count <= chunk_ledgers and probes <= CHUNK_PROBES:
                found[-1] = Chunk(last.ledgers + chunk.ledgers, last.absent + chunk.absent)
                continue
        found.append(chunk)
    return found


async def _racks(store: MetadataStore, options: ClientOptions) -> dict[BookieId, str]:
    registered = await store.bookies()
    hosts: dict[BookieId, str] = {}
    for bookie in {*registered, *await store.cookies()}:
        there = registered.get(bookie)
        address = (there.service_info.rpc if there else None) or split_bookie_id(bookie)
        hosts[bookie] = address.host if address is not None else bookie
    return await topology_of(options, store).racks(hosts)


def run_audit(
    engine: Engine,
    plan: AuditPlan,
    folder: Path,
    progress: Progress,
    *,
    wall_ms: Callable[[], int],
) -> Summary:
    """Executes the plan and writes the tables and ``summary.json``. Raises what the job raises; then no table is
    written."""
    from bkbox.audit.tables import TableFiles, batch_of

    started_ms, began_s = wall_ms(), time.monotonic()
    totals = _Totals()
    progress.stage("auditing", plan.ledgers)
    with TableFiles(folder, [*TABLES, *SUMS]) as files:
        for result in engine.map(plan.job, plan.chunks):
            files.write(result.tables)
            totals.add(result)
            progress.add_progress(result.ledgers, result.size)
        files.write(
            {
                "copies_per_rack": batch_of("copies_per_rack", totals.racks),
                "bytes_per_owner": batch_of("bytes_per_owner", totals.owners),
            }
        )
    summary = Summary(
        cluster=plan.job.uri,
        engine=engine.name,
        started_ms=started_ms,
        seconds=round(time.monotonic() - began_s, 3),
        bookies=len(plan.job.registered),
        ledgers=totals.ledgers,
        entries=totals.entries,
        copies_read=totals.copies,
        bytes_read=totals.size,
        read_all=plan.job.read_all,
        ids_probed=totals.probed,
        ids_unprobed=plan.unprobed_ids,
        rows=files.counts,
        faults=dict(totals.faults),
        unanswered_probes=dict(sorted(totals.unprobed.items())),
    )
    (folder / SUMMARY).write_text(json.dumps(asdict(summary), indent=2) + "\n")
    return summary


def read_summary(folder: Path) -> Summary:
    """The summary of an earlier audit. Raises OperatorError if there is none."""
    try:
        return Summary(**json.loads((folder / SUMMARY).read_text()))
    except FileNotFoundError:
        raise OperatorError(
            f"{folder / SUMMARY} is not there: {folder} does not hold the results of `bkbox audit`"
        ) from None
    except (ValueError, TypeError) as error:
        raise OperatorError(f"{folder / SUMMARY} is not the summary of an audit: {error}") from None


@dataclass(slots=True)
class _Totals:
    """The sums of the results so far."""

    racks: list[RackCopies] = field(default_factory=list)
    owners: list[OwnerBytes] = field(default_factory=list)
    ledgers: int = 0
    entries: int = 0
    copies: int = 0
    size: int = 0
    probed: int = 0
    unprobed: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)

    def add(self, result: Result) -> None:
        self.racks = merged_racks([*self.racks, *result.racks])
        self.owners = merged_owners([*self.owners, *result.owners])
        self.ledgers += result.ledgers
        self.entries += result.entries
        self.copies += result.copies
        self.size += result.size
        self.probed += result.probed
        self.unprobed.update(result.unprobed)
        for name in ("missing", "corrupt", "unreadable", "unknown", "no_copy"):
            if name in result.tables:
                self.faults[name] += sum(result.tables[name].column("entries").to_pylist())
        if "divergent" in result.tables:
            ids = result.tables["divergent"].select(["ledger_id", "entry_id"]).to_pylist()
            self.faults["divergent"] += len({(row["ledger_id"], row["entry_id"]) for row in ids})
        if "orphaned" in result.tables:
            self.faults["orphaned"] += len(
                set(result.tables["orphaned"].column("ledger_id").to_pylist())
            )
