"""What is measured, as data: the loads, on whom, and the lines that compare two of them.

A load is run once per round on each subject that a line names, and all its lines are made of that.
Subjects (systems.py, clusters.py): bkbox by what it acknowledges after (``write``, ``sync``,
``journal``), ``interpreted`` (sync, without the compiled kernel), ``java`` (no journal) and
``java-journal``, ``limit`` (appends and acknowledges, no more), ``synced limit`` (with fdatasync)
and ``sink`` (only acknowledges). A subject that ends with ``by foreign`` is loaded by foreign.c instead of bkbox's load
generator.
"""

from __future__ import annotations

from dataclasses import dataclass

from bkbox.bench.bookie import Kind, Plan
from bkbox.bench.client_plan import ClientPlan
from bkbox.bench.load import Shape

SECONDS = 3.0
WARMUP_S = 1.0
JAVA_FLUSH_S = 12.0
"""Java's bookie flushes what it holds every 10 s (flushInterval)."""

RATE, TAIL = "per_s", "p999_us"
BY_FOREIGN = " by foreign"

RATE_SECONDS = 10.0
RATE_READS = 0.1
RATE_ENTRIES = 16_000
"""To be read, over all ledgers."""

RATE_IN_FLIGHT = 4096
"""Java's bookie refuses adds from 10,000 in flight on (maxPendingAddRequestsPerThread)."""

MAXIMUM_OF = "java-journal"
"""The bookie whose maximum decides about the rates that are a share."""


@dataclass(frozen=True, slots=True)
class Load:
    """One load on one bookie."""

    name: str
    command: str
    plan: Plan


@dataclass(frozen=True, slots=True)
class RateLoad:
    """An open loop on one bookie: at ``per_s`` requests per second or, where that is None, at a ``share`` of what
    Java's bookie takes in a closed loop of the same shape in the same round."""

    name: str
    command: str
    plan: Plan
    per_s: int | None
    share: float | None


@dataclass(frozen=True, slots=True)
class ForeignLoad:
    """Adds by foreign.c and, for subjects without BY_FOREIGN, the same by bkbox's own load generator."""

    name: str
    command: str
    plan: Plan


@dataclass(frozen=True, slots=True)
class ClientLoad:
    """Appends and reads through a client, on a cluster of three."""

    name: str
    command: str
    plan: ClientPlan


@dataclass(frozen=True, slots=True)
class Start:
    """From exec to the first answer, with so many entries of 1 KiB on the disk."""

    name: str
    command: str
    entries: int


AnyLoad = Load | RateLoad | ForeignLoad | ClientLoad | Start


@dataclass(frozen=True, slots=True)
class Line:
    """``ours`` and ``theirs`` are subjects; ``figure`` and ``tail`` name what is compared (figures.py),
    ``at_least`` and ``at_most`` bound ours : theirs, and ``tail_at_most`` that of the tail."""

    text: str
    load: str
    ours: str
    theirs: str
    figure: str
    at_least: float | None = None
    at_most: float | None = None
    tail: str | None = None
    tail_at_most: float | None = None

    @property
    def name(self) -> str:
        return f"{self.load}/{self.ours}:{self.theirs}/{self.figure}"


def shape_options(shape: Shape) -> str:
    """The options of ``bkbox bench bookie`` that ask for a shape."""
    return (
        f"--ledgers {shape.ledgers} --connections {shape.connections} "
        f"--window {shape.window} --size {shape.size}"
    )


def _load(
    name: str,
    ledgers: int,
    connections: int,
    window: int,
    size: int,
    *,
    kind: Kind = "adds",
    entries: int | None = None,
    settle_s: float = 0.0,
) -> Load:
    shape = Shape(ledgers, connections, window, size)
    command = f"bkbox bench bookie --load {kind} {shape_options(shape)} --seconds {SECONDS:g}"
    if entries is not None:
        command += f" --entries {entries}"
    if settle_s:
        command += f" --settle {settle_s:g}"
    return Load(name, command, Plan(kind, shape, SECONDS, WARMUP_S, entries, settle_s, 30.0))


def _rate_load(rate: float, size: int, ledgers: int) -> RateLoad:
    """``rate``: requests per second, or below 1 a share of Java's maximum."""
    per_s, share = (None, rate) if rate < 1 else (int(rate), None)
    pace = f"{share:.0%} of Java's maximum" if share is not None else f"{per_s:,}/s"
    payload = "1 KiB" if size == 1024 else f"{size} bytes"
    name = f"rate {pace}, {payload}, {ledgers:,} ledger{'s' * (ledgers > 1)}"
    connections = 1 if ledgers == 1 else 16
    shape = Shape(ledgers, connections, RATE_IN_FLIGHT // connections, size)
    command = (
        f"bkbox bench bookie --rate {per_s if share is None else 'N'} --reads {RATE_READS:.0%} "
        f"--entries {RATE_ENTRIES} {shape_options(shape)} --seconds {RATE_SECONDS:g}"
    )
    plan = Plan("adds", shape, RATE_SECONDS, WARMUP_S, RATE_ENTRIES, 0.0, 30.0)
    return RateLoad(name, command, plan, per_s, share)


RATE_LOADS = tuple(
    _rate_load(rate, size, ledgers)
    for size in (1024, 100)
    for ledgers in (1, 1000)
    for rate in (1000, 10_000, 30_000, 0.5, 0.8)
)


def maximum_plan(load: RateLoad) -> Plan:
    """The closed loop that finds a bookie's maximum for the shape of an open loop."""
    shape = load.plan.shape
    window = 1024 if shape.connections == 1 else 64
    of = Shape(shape.ledgers, shape.connections, window, shape.size)
    return Plan("adds", of, SECONDS, WARMUP_S, None, 0.0, 30.0)


def _foreign_load(name: str, load: Load) -> ForeignLoad:
    command = f"make bench-peers ARGS='--only \"{name}\"'"
    return ForeignLoad(name, command, load.plan)


_ADDS = (
    _load("w256", 16, 4, 256, 1024),
    _load("w64", 16, 4, 64, 1024),
    _load("w16", 16, 4, 16, 1024),
    _load("w1", 4, 4, 1, 1024),
    _load("100 bytes", 16, 4, 256, 100),
    _load("1,000 ledgers", 1000, 16, 64, 1024),
    _load("10,000 ledgers", 10_000, 16, 64, 1024),
)

FOREIGN_LOADS = tuple(_foreign_load(f"foreign {load.name}", load) for load in _ADDS)

LOADS: tuple[AnyLoad, ...] = (
    *_ADDS,
    _load("hot reads", 16, 4, 64, 1024, kind="reads", entries=320_000),
    _load("catch-up", 16, 4, 64, 1024, kind="catchup", entries=640_000, settle_s=JAVA_FLUSH_S),
    _load("mixed", 16, 4, 64, 1024, kind="mixed", entries=640_000, settle_s=JAVA_FLUSH_S),
    _load("written", 16, 4, 256, 1024, settle_s=JAVA_FLUSH_S),
    *RATE_LOADS,
    *FOREIGN_LOADS,
    ClientLoad("client", "bkbox bench client", ClientPlan(3, 3, 2, 1000, 1024, SECONDS, WARMUP_S)),
    Start("start", "bkbox run", 0),
    Start("start with 1,000,000 entries", "bkbox run", 1_000_000),
)


def _adds(
    text: str,
    load: str,
    ours: str,
    theirs: str,
    at_least: float | None,
    tail_at_most: float | None,
    figure: str = "adds",
) -> Line:
    tail = None if tail_at_most is None else f"{figure} {TAIL}"
    return Line(
        text,
        load,
        ours,
        theirs,
        f"{figure} {RATE}",
        at_least=at_least,
        tail=tail,
        tail_at_most=tail_at_most,
    )


def _limit(load: str, limit: str, theirs: str) -> Line:
    """What nothing on this machine can be ahead of."""
    text = (
        f"the limit itself: {load}" if limit == "limit" else f"the limit that syncs itself: {load}"
    )
    return Line(text, load, limit, theirs, f"adds {RATE}", tail=f"adds {TAIL}")


def _cost(what: str, load: str, ours: str, theirs: str) -> Line:
    """CPU of all processes of a bookie: seconds per million requests are microseconds per request."""
    return Line(f"CPU per {what}, µs: {ours}", load, ours, theirs, "cpu_s_per_million")


RATE_LINES = tuple(
    Line(
        f"at a constant {load.name}",
        load.name,
        "sync",
        "java-journal",
        "adds p99_us",
        at_most=0.5,
        tail=f"adds {TAIL}",
        tail_at_most=0.3,
    )
    for load in RATE_LOADS
)

RATE_LIMIT_LINES = tuple(
    Line(
        f"the limit that syncs, at a constant {load.name}",
        load.name,
        "synced limit",
        "java-journal",
        "adds p99_us",
        tail=f"adds {TAIL}",
    )
    for load in RATE_LOADS
)
"""What a program that only appends and syncs has at these rates: a column of the open loops' table."""

LINES = (
    _adds("1 KiB, window 256: write", "w256", "write", "java", 2.5, 0.1),
    _adds("1 KiB, window 256: sync", "w256", "sync", "java-journal", 3, 0.1),
    _adds("1 KiB, window 256: journal", "w256", "journal", "java-journal", 1.5, 0.3),
    _adds("1 KiB, window 16: write", "w16", "write", "java", 1, 0.5),
    _adds("1 KiB, window 16: sync", "w16", "sync", "java-journal", 3, 0.5),
    _adds("1 KiB, window 1: write", "w1", "write", "java", 1, 0.5),
    _adds("1 KiB, window 1: sync", "w1", "sync", "java-journal", 4, 0.5),
    Line(
        "bytes written per byte: sync",
        "written",
        "sync",
        "java-journal",
        "written_per_byte",
        at_most=0.55,
    ),
    _adds("100 bytes, window 256: write", "100 bytes", "write", "java", 2, 0.5),
    _adds("100 bytes, window 256: sync", "100 bytes", "sync", "java-journal", 2, 0.5),
    _adds("1,000 ledgers, window 64: write", "1,000 ledgers", "write", "java", 2, 0.1),
    _adds("1,000 ledgers, window 64: sync", "1,000 ledgers", "sync", "java-journal", 2, 0.1),
    _adds("10,000 ledgers, window 64: write", "10,000 ledgers", "write", "java", 2, 0.1),
    _adds("10,000 ledgers, window 64: sync", "10,000 ledgers", "sync", "java-journal", 2, 0.1),
    _adds("hot reads, window 64", "hot reads", "sync", "java-journal", 1.5, 0.5, "reads"),
    _adds("catch-up reads, cold cache", "catch-up", "sync", "java-journal", 1.5, 0.5, "reads"),
    _adds("adds during catch-up: write", "mixed", "write", "java", 2, 0.2),
    _adds("adds during catch-up: sync", "mixed", "sync", "java-journal", 2, 0.2),
    _adds("client appends, E3 WQ3 AQ2", "client", "bkbox on bkbox", "java on java", 1.3, 0.5),
    _adds("client reads", "client", "bkbox on bkbox", "java on java", 1.5, None, "reads"),
    *(
        _adds(f"{name}: {what}", "client", subject, "java on java", None, None, figure)
        for subject, name in (
            ("bkbox's log on bkbox", "log"),
            ("bkbox's sync client on bkbox", "client without an event loop"),
        )
        for what, figure in (("appends", "adds"), ("reads", "reads"))
    ),
    _adds("Java client, appends", "client", "java on bkbox", "java on java", 1.2, 0.7),
    _adds("Java client, reads", "client", "java on bkbox", "java on java", 1.2, None, "reads"),
    *(
        Line(
            f"CPU per entry of the client, µs: {what}",
            "client",
            "bkbox on bkbox",
            "java on java",
            f"{figure} client_cpu_us",
        )
        for what, figure in (("appends", "adds"), ("reads", "reads"))
    ),
    _cost("add, window 256", "w256", "write", "java"),
    _cost("add, window 256", "w256", "sync", "java-journal"),
    _cost("add, window 16", "w16", "sync", "java-journal"),
    _cost("add, window 1", "w1", "sync", "java-journal"),
    _cost("add of 100 bytes", "100 bytes", "sync", "java-journal"),
    _cost("add, 1,000 ledgers", "1,000 ledgers", "sync", "java-journal"),
    _cost("hot read", "hot reads", "sync", "java-journal"),
    _cost("catch-up read", "catch-up", "sync", "java-journal"),
    *(
        Line(
            f"context switches per add, {load}: sync",
            load,
            "sync",
            "java-journal",
            "switches_per_request",
        )
        for load in ("w256", "w16", "w1")
    ),
    Line("write, of the limit", "w256", "write", "limit", f"adds {RATE}", at_least=0.75),
    *(
        Line(
            f"sync, of the limit that syncs: {load}",
            load,
            "sync",
            "synced limit",
            f"adds {RATE}",
            at_least=0.9,
        )
        for load in ("w256", "w64", "w16", "w1", "1,000 ledgers", "10,000 ledgers")
    ),
    *(_limit(load, "limit", "java") for load in ("w256", "w16", "w1")),
    *(_limit(load, "synced limit", "java-journal") for load in ("w256", "w16", "w1")),
    Line("load generator's ceiling", "w256", "sink", "limit", f"adds {RATE}"),
    Line("memory after it, RSS", "w256", "sync", "java-journal", "rss_bytes", at_most=0.1),
    Line("memory after it, PSS", "w256", "sync", "java-journal", "pss_bytes", at_most=0.1),
    Line("start, empty disk", "start", "sync", "java-journal", "start_s", at_most=0.2),
    Line(
        "start, 1,000,000 entries",
        "start with 1,000,000 entries",
        "sync",
        "java-journal",
        "start_s",
        at_most=0.2,
    ),
    Line("interpreted, window 256", "w256", "interpreted", "sync", f"adds {RATE}"),
    Line("interpreted, hot reads", "hot reads", "interpreted", "sync", f"reads {RATE}"),
    *RATE_LINES,
    *RATE_LIMIT_LINES,
    *(
        Line(
            f"{load.name}: bkbox as the foreign load sees it",
            load.name,
            f"sync{BY_FOREIGN}",
            "sync",
            f"adds {RATE}",
            at_least=0.8,
            at_most=1.25,
        )
        for load in FOREIGN_LOADS
    ),
    *(
        Line(
            f"{load.name}: sync",
            load.name,
            f"sync{BY_FOREIGN}",
            f"java-journal{BY_FOREIGN}",
            f"adds {RATE}",
            tail=f"adds {TAIL}",
        )
        for load in FOREIGN_LOADS
    ),
)
