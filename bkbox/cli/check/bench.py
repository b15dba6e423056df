"""``bkbox bench …``: benchmarks of a bookie, the client and the load generator on this host."""

from __future__ import annotations

import random
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Literal

import click

from bkbox.api.admin.client import fetch_status
from bkbox.api.admin.socket_path import SOCKET_NAME
from bkbox.base.text import quoted
from bkbox.bench import bookie as bookie_bench
from bkbox.bench import client as client_bench
from bkbox.bench import sink as sink_bench
from bkbox.bench.bookie import Plan, Result, Target
from bkbox.bench.client_plan import ClientPlan, ClientResult, Through
from bkbox.bench.load import Measured, Shape
from bkbox.bench.memory import PageCache
from bkbox.bench.open_loop import Rate, RateReport
from bkbox.bench.server import Bookie, running, temporary_folder
from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.lib.output import (
    Format,
    message,
    output_option,
    print_document,
    print_fields,
    print_operations,
    print_stages,
    print_table,
    prints,
)
from bkbox.cli.lib.output import size as bytes_text
from bkbox.cli.lib.signals import end_in_order
from bkbox.config.values import split_address

_COLUMNS = (
    *("", "per second", "p50 ms", "p99 ms", "p99.9 ms", "p99.99 ms", "max ms"),
    *("requests", "MB/s"),
)
_WINDOW, _RATE_WINDOW = 256, 1024
_RATE_MAX = 10_000_000
_STATUS_S = 10.0
_DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)


class _Percentage(click.ParamType[float]):
    """A share of a whole: ``10%``, as a number from 0 to 1."""

    name = "percentage"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        text = str(value)
        number = text.removesuffix("%")
        try:
            share = float(number) / 100
        except ValueError:
            share = -1.0
        if number == text or not 0 < share <= 1:
            self.fail(
                f"{quoted(text)} is not a percentage above 0% and up to 100%, as 10%", param, ctx
            )
        return share


_size = click.option(
    "--size",
    type=click.IntRange(0, 4 << 20),
    default=1024,
    show_default=True,
    help="Bytes of payload of an entry.",
)


@click.group()
def bench() -> None:
    """Measure a bookie, the client, and the load generator itself.

    \b
    Example:
      bkbox bench bookie --ack-after write --window 16
    """


@bench.command("bookie")
@click.argument("address", metavar="[HOST:PORT]", required=False)
@click.option(
    "--load",
    type=click.Choice(["adds", "reads", "catchup", "mixed"]),
    default="adds",
    show_default=True,
    help="Add new entries, read new ones, read old ones from a cold cache, or add while others read old ones.",
)
@click.option(
    "--ledgers",
    type=click.IntRange(1),
    default=16,
    show_default=True,
    help="Ledgers, shared out over the connections.",
)
@click.option(
    "--connections", type=click.IntRange(1), default=4, show_default=True, help="Connections."
)
@click.option(
    "--window",
    type=click.IntRange(1, 1 << 20),
    help=f"Requests on their way per connection [default: {_WINDOW}, with --rate {_RATE_WINDOW}].",
)
@click.option(
    "--rate",
    type=click.IntRange(1, _RATE_MAX),
    metavar="N",
    help="An open loop of N requests per second, which are due whatever the responses do; latencies count from "
    "when a request was due.",
)
@click.option(
    "--reads",
    type=_Percentage(),
    metavar="PERCENT",
    help="With --rate: so many of the requests are reads of entries that were just written, on connections of their "
    "own, as 10%.",
)
@_size
@click.option(
    "--seconds",
    type=click.FloatRange(0.01),
    default=5.0,
    show_default=True,
    help="How long it counts.",
)
@click.option(
    "--entries",
    type=click.IntRange(1),
    help="Adds: so many instead of --seconds. Reads: so many are written before [default: 400000].",
)
@click.option(
    "--warmup",
    type=click.FloatRange(0),
    default=1.0,
    show_default=True,
    help="Seconds of load before it counts.",
)
@click.option(
    "--settle",
    type=click.FloatRange(0),
    default=0.0,
    show_default=True,
    help="Seconds to wait for a bookie that holds entries in memory before it writes them; also "
    "measures what was written per byte.",
)
@click.option(
    "--silence",
    type=click.FloatRange(0.1),
    default=10.0,
    show_default=True,
    help="Seconds without any answer that are a failure.",
)
@click.option(
    "--fill-memory",
    is_flag=True,
    help="Fill free memory with page cache first, as it is on a machine that has run for a while: where a host takes "
    "free memory back from this machine, the first touch of a page costs more than an add. Takes seconds for each "
    "GiB that is free.",
)
@click.option(
    "--ack-after",
    type=click.Choice(["sync", "write", "journal"]),
    default="sync",
    show_default=True,
    help="Of the bookie that is started here.",
)
@click.option(
    "--dir",
    "folder",
    type=_DIRECTORY,
    default=".",
    help="Where that bookie has its files while it runs [default: this folder].",
)
@click.option(
    "--pid",
    type=click.IntRange(1),
    help="Process of the bookie at HOST:PORT, to tell what it uses.",
)
@click.option(
    "--data", type=_DIRECTORY, help="Data folder of the bookie at HOST:PORT, for catch-up reads."
)
@output_option
@prints(Result)
@click.pass_context
def bookie(
    ctx: click.Context,
    address: str | None,
    *,
    load: bookie_bench.Kind,
    ledgers: int,
    connections: int,
    window: int | None,
    rate: int | None,
    reads: float | None,
    size: int,
    seconds: float,
    entries: int | None,
    warmup: float,
    settle: float,
    silence: float,
    fill_memory: bool,
    ack_after: str,
    folder: Path,
    pid: int | None,
    data: Path | None,
    output: Format,
) -> None:
    """Load a bookie with requests of protocol version 2, in a closed loop or, with --rate, at a constant rate.

    In a closed loop each connection sends its next request when one is answered. With --rate requests are due
    in even distances, and a bookie that stalls is charged for all that were due meanwhile. The result says whether
    the bookie keeps up, how many requests waited at most, and how late the load generator itself was.

    Without HOST:PORT a bookie is started for this, in a temporary folder. The bookie at HOST:PORT
    keeps the ledgers that are made here: use one that may be thrown away.

    \b
    Example:
      bkbox bench bookie --ack-after write --window 16
      bkbox bench bookie --rate 10000 --reads 10% --seconds 30
      bkbox bench bookie --load catchup 127.0.0.1:3181 --data .
    """
    rng = random.Random()  # noqa: S311 - ids of ledgers and ports
    pace = _rate(load, rate, reads, seconds, entries)
    if entries is None and (load != "adds" or reads is not None):
        entries = 400_000
    if window is None:
        window = _WINDOW if pace is None else _RATE_WINDOW
    shape = Shape(ledgers, connections, window, size)
    plan = Plan(load, shape, seconds, warmup, entries, settle, silence, pace)
    end_in_order()
    with ExitStack() as stack:
        if address is None:
            root = stack.enter_context(temporary_folder(folder))
            settings = {"ack_after": ack_after}
            own = Bookie(root, f"sqlite:{root / 'metadata.db'}", settings, rng)
            stack.enter_context(running(own))
            target = Target(own.address, own.pid, own.disk)
        else:
            place = split_address(address)
            if place is None:
                raise click.BadParameter("has to be HOST:PORT", param_hint="HOST:PORT")
            target = Target(place, pid, data)
        if fill_memory:
            on_disk = stack.enter_context(temporary_folder(folder))
            stack.enter_context(PageCache(on_disk)).fill()
        result = bookie_bench.run(target, plan, rng)
        if address is None:
            [disk] = fetch_status(own.disk / SOCKET_NAME, _STATUS_S).disks
            result = replace(result, stages=disk.stages, operations=disk.operations)
    if output != "table":
        print_document(result.to_json(), output)
    else:
        _show(result)
    if result.rate is not None and result.rate.is_late:
        message(
            "warning: the load generator itself was late by a quarter of p99 or p99.9, or more: these latencies are "
            "partly its own. Give it a free processor, or ask for a lower rate"
        )
    if result.errors:
        message(f"error: answers with a wrong code: {result.errors}")
        ctx.exit(ExitCode.FAILED)


@bench.command("client")
@click.option(
    "--metadata",
    metavar="URI",
    help="Metadata store of a running cluster [default: bookies started here].",
)
@click.option(
    "--bookies",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="How many are started here.",
)
@click.option(
    "--ack-after",
    type=click.Choice(["sync", "write", "journal"]),
    default="sync",
    show_default=True,
    help="Of the bookies that are started here.",
)
@click.option(
    "--dir",
    "folder",
    type=_DIRECTORY,
    default=".",
    help="Where those have their files while they run [default: this folder].",
)
@click.option(
    "-e",
    "--ensemble",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="Bookies of the ledger.",
)
@click.option(
    "-w",
    "--write-quorum",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="Copies of an entry.",
)
@click.option(
    "-a",
    "--ack-quorum",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="Copies that acknowledge it.",
)
@click.option(
    "--window",
    type=click.IntRange(1),
    default=1000,
    show_default=True,
    help="Entries on their way.",
)
@_size
@click.option(
    "--seconds",
    type=click.FloatRange(0.01),
    default=5.0,
    show_default=True,
    help="How long appends count, and reads.",
)
@click.option(
    "--warmup",
    type=click.FloatRange(0),
    default=1.0,
    show_default=True,
    help="Seconds before each that do not count.",
)
@click.option(
    "--protocol",
    type=click.Choice(["v2", "v3"]),
    default="v2",
    show_default=True,
    help="Protocol version of adds and reads.",
)
@click.option(
    "--through",
    type=click.Choice(["ledger", "log", "sync"]),
    default="ledger",
    show_default=True,
    help="A ledger or a log of the asyncio client, or a ledger of the client without an event loop.",
)
@output_option
@prints(ClientResult)
def client(
    metadata: str | None,
    *,
    bookies: int,
    ack_after: str,
    folder: Path,
    ensemble: int,
    write_quorum: int,
    ack_quorum: int,
    window: int,
    size: int,
    seconds: float,
    warmup: float,
    protocol: Literal["v2", "v3"],
    through: Through,
    output: Format,
) -> None:
    """Append to a ledger, or to a log, and read it back through bkbox's own client.

    Without --metadata a cluster of bookies is started here, in a temporary folder. The ledger is deleted at the
    end; its bookies give back the room when they collect. Reads have no latencies: entries are asked for ahead.

    \b
    Example:
      bkbox bench client --window 100 --size 100
    """
    plan = ClientPlan(
        ensemble, write_quorum, ack_quorum, window, size, seconds, warmup, protocol, through
    )
    rng = random.Random()  # noqa: S311 - ports
    end_in_order()
    with ExitStack() as stack:
        if metadata is None:
            root = stack.enter_context(temporary_folder(folder))
            metadata = f"sqlite:{root / 'metadata.db'}"
            for number in range(bookies):
                own = Bookie(root / f"bookie{number}", metadata, {"ack_after": ack_after}, rng)
                stack.enter_context(running(own))
        result = client_bench.run(metadata, plan)
    if output != "table":
        print_document(result.to_json(), output)
        return
    print_table(_COLUMNS, [_row("appends", result.appends), _row("reads", result.reads)])
    used = (
        f"{result.client_cpu_s_per_million:.2f} CPU seconds per million appends, "
        f"{result.read_cpu_s_per_million:.2f} per million reads"
    )
    print_fields([("client", used)])


@bench.command("sink")
@click.option(
    "--listen",
    default="127.0.0.1:0",
    show_default=True,
    metavar="HOST:PORT",
    help="Where to take connections; port 0 takes a free one.",
)
@click.option(
    "--size",
    type=click.IntRange(0, 4 << 20),
    default=1024,
    show_default=True,
    help="Bytes of payload of the entries that reads are answered with.",
)
@click.option(
    "--append",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Append what comes to this file.",
)
@click.option("--sync", is_flag=True, help="With --append: sync the file before each answer.")
def sink(listen: str, size: int, file: Path | None, sync: bool) -> None:
    """Answer everything and keep nothing: what the load generator can do.

    With --append the limit of any bookie that writes to one file: only the length of a request is
    looked at. Nothing is synced, or, with --sync, all that has come meanwhile at once.

    \b
    Example:
      bkbox bench sink --listen 127.0.0.1:3999
      bkbox bench bookie 127.0.0.1:3999
    """
    place = split_address(listen)
    if place is None:
        raise click.BadParameter("has to be HOST:PORT", param_hint="--listen")
    if sync and file is None:
        raise click.UsageError("--sync needs --append FILE: there is nothing to sync")
    try:
        sink_bench.serve(*place, size, file, lambda text: click.echo(f"ready {text}"), sync=sync)
    except KeyboardInterrupt:
        return


def _rate(
    load: str, per_s: int | None, reads: float | None, seconds: float, entries: int | None
) -> Rate | None:
    """The rate of an open loop; None for a closed loop. Raises UsageError for options that do not go together."""
    if per_s is None:
        if reads is not None:
            raise click.UsageError("--reads needs --rate N: a closed loop has no shares")
        return None
    if load != "adds":
        raise click.UsageError("--rate goes with --load adds: for reads give --reads PERCENT")
    if reads is None and entries is not None:
        raise click.UsageError(
            "--entries with --rate needs --reads PERCENT: adds last for --seconds"
        )
    if per_s * seconds < 1:
        raise click.UsageError(f"at --rate {per_s} nothing is due within {seconds:g} s")
    return Rate(per_s, reads or 0.0)


def _show_rate(report: RateReport) -> list[tuple[str, object]]:
    """The fields of an open loop."""
    asked, achieved = f"{report.asked_per_s:,}", f"{report.achieved_per_s:,.0f}"
    if report.is_reached:
        verdict = f"{achieved} of {asked} requests per second"
    else:
        verdict = (
            f"the bookie cannot take this rate: {achieved} of {asked} requests per second; "
            f"{report.drain_s:.2f} s after the last was due {report.unanswered:,} were not answered, "
            f"{report.refused:,} were refused"
        )
    late = (report.late_p50_us, report.late_p99_us, report.late_p999_us, report.late_max_us)
    p50, p99, p999, largest = (f"{each / 1000:,.3f}" for each in late)
    return [
        ("rate", verdict),
        ("backlog", f"{report.deepest_backlog:,} requests at most were due and not answered"),
        (
            "sent late",
            f"by the load generator itself: p50 {p50}, p99 {p99}, p99.9 {p999}, max {largest} ms",
        ),
    ]


def _show(result: Result) -> None:
    parts = (("adds", result.adds), ("reads", result.reads))
    print_table(
        _COLUMNS,
        [_row(name, part) for name, part in parts if part is not None],
    )
    fields: list[tuple[str, object]] = [
        ("load generator", f"{result.load_cpu_s_per_million:.2f} CPU seconds per million requests")
    ]
    if result.rate is not None:
        fields = _show_rate(result.rate) + fields
    if result.stolen_s > 0:
        text = f"{result.stolen_s:.2f} CPU seconds, by the host of this virtual machine"
        fields.append(("stolen", text))
    cost = result.cost
    if cost is not None:
        fields += [
            (
                "bookie",
                f"{cost.cpu_s_per_million:.2f} CPU seconds per million requests, "
                f"{cost.switches_per_request:.3f} context switches per request",
            ),
            ("memory", f"{bytes_text(cost.rss_bytes)} RSS, {bytes_text(cost.pss_bytes)} PSS"),
        ]
        if cost.written_per_byte is not None:
            fields.append(("written", f"{cost.written_per_byte:.2f} bytes per byte of entries"))
        if cost.device_written_per_byte is not None:
            fields.append(
                ("the device", f"{cost.device_written_per_byte:.2f} bytes, of all processes")
            )
    print_fields(fields)
    operations = [("", each) for each in result.operations if each.count]
    if operations:
        print_operations(operations, "as the bookie measures it, warm-up included")
    if any(stage.count for stage in result.stages):
        print_stages(
            [("", stage) for stage in result.stages],
            "where the time of adds went, warm-up included",
        )


def _row(name: str, part: Measured) -> tuple[object, ...]:
    latencies = (part.p50_us, part.p99_us, part.p999_us, part.p9999_us, part.max_us)
    return (
        name,
        f"{part.per_s:,.0f}",
        *("-" if each is None else f"{each / 1000:,.3f}" for each in latencies),
        f"{part.requests:,}",
        f"{part.bytes / part.seconds / 1e6:,.0f}",
    )
