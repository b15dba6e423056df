"""``bkbox takeover`` and ``bkbox handback``: a Java bookie's disks become bkbox's, and Java's again."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import click

from bkbox.base.commandline import bookie_command
from bkbox.base.host.small_files import read_small
from bkbox.cli.lib.options import FILE, config_option, confirm, dry_run_option, yes_option
from bkbox.cli.lib.output import message, outcome_option, size
from bkbox.cli.lib.progress_bar import ByteProgress
from bkbox.config.schema import Config
from bkbox.errors import ConfigError

if TYPE_CHECKING:
    from bkbox.takeover.java_bookie import JavaBookie
    from bkbox.takeover.plan import TakeoverPlan

_SAMPLE_BYTES = 64 << 20
"""Bytes that are read of the first file to estimate how long the whole takes."""

_PASSES = 3
"""A byte is read, written and synced: as long as it takes to read it so many times, as a first guess."""

_conf_option = click.option(
    "--conf",
    "conf_file",
    type=FILE,
    required=True,
    metavar="FILE",
    help="The bk_server.conf of Java's bookie.",
)


@click.command(no_args_is_help=True)
@_conf_option
@config_option
@click.option(
    "--fence-all",
    is_flag=True,
    help="Do without the index of Java's ledgers, if it is lost or cannot be read: every ledger is fenced, master keys "
    "and explicit LACs are known as far as the journal has them.",
)
@dry_run_option
@yes_option
@outcome_option
def takeover(conf_file: Path, config: Config, fence_all: bool, dry_run: bool, yes: bool) -> None:
    """Make bkbox's disks of those of a stopped Java bookie, in place.

    One entry log file after the other is converted and removed, so that the space of the largest one
    is enough. The bookie keeps its id. FILE of --config is what "bkbox config import" makes of
    bk_server.conf. If it is interrupted, run it again: nothing is lost, and no bookie starts on the
    disks before it is done. "bkbox handback" is the way back.

    \b
    Example:
      bkbox config import bk_server.conf --to bookie.toml
      bkbox takeover --conf bk_server.conf --config bookie.toml --dry-run
      bkbox takeover --conf bk_server.conf --config bookie.toml
    """
    from bkbox.metadata import connect
    from bkbox.storage.files import RealFiles
    from bkbox.takeover.plan import Cluster, make_plan, read_cluster
    from bkbox.takeover.takeover import Takeover

    java = _java_bookie(conf_file)
    files = RealFiles()

    async def read() -> Cluster:
        async with await connect(config.metadata, config.metadata_wait_s) as store:
            return await read_cluster(store, config.bookie_id, java.port)

    cluster = asyncio.run(read())
    plan = make_plan(java, config, files, cluster, fence_all=fence_all)
    for line in plan.lines():
        message(line)
    _say_time(plan)
    if dry_run:
        message("nothing was changed")
        return
    confirm("Java's files are removed one by one as they are converted. Go on?", yes=yes)
    with ByteProgress() as progress:
        work = Takeover(
            java,
            config,
            files,
            cluster,
            progress,
            now_ms=_now_ms,
            new_uuid=uuid4,
            fence_all=fence_all,
        )

        async def finish() -> None:
            async with await connect(config.metadata, config.metadata_wait_s) as store:
                await work.finish(store)

        with work.locked():
            work.convert()
            asyncio.run(finish())
    message(f"done. Start the bookie with: {bookie_command('run')}")


@click.command(no_args_is_help=True)
@_conf_option
@config_option
@dry_run_option
@yes_option
@outcome_option
def handback(conf_file: Path, config: Config, dry_run: bool, yes: bool) -> None:
    """Make Java's disks of those of a stopped bookie of bkbox's, in place.

    One segment after the other is written as an entry log file of Java's and removed; then come the
    index of the storage that bk_server.conf names, and the cookies. The bookie keeps its id. If it is
    interrupted, run it again: nothing is lost, and no bookie starts on the disks before it is done.

    
    Example:
      bkbox handback --conf bk_server.conf --config bookie.toml --dry-run
      bkbox handback --conf bk_server.conf --config bookie.toml
    """
    from bkbox.metadata import connect
    from bkbox.storage.disk.conversion import Conversion, Phase
    from bkbox.storage.files import RealFiles
    from bkbox.takeover.handback import Handback
    from bkbox.takeover.plan import read_cluster

    java = _java_bookie(conf_file)

    async def begin() -> tuple[Handback, Conversion | None]:
        async with await connect(config.metadata, config.metadata_wait_s) as store:
            cluster = await read_cluster(store, config.bookie_id, java.port)
            work = Handback(java, config, RealFiles(), cluster, progress, now_ms=_now_ms)
            return work, await work.check(store)

    async def finish() -> None:
        async with await connect(config.metadata, config.metadata_wait_s) as store:
            await work.finish(store)

    with ByteProgress() as progress:
        work, begun = asyncio.run(begin())
        with work.locked():
            if begun is None or begun.phase is Phase.COPYING:
                plan = work.look()
                for line in plan.lines():
                    message(line)
                message(f"{size(plan.total_bytes)} to convert")
            if dry_run:
                message("nothing was changed")
                return
            confirm("bkbox's files are removed one by one as they are converted. Go on?", yes=yes)
            work.convert(begun)
            asyncio.run(finish())
    message(f"done. Java's bookie starts with {conf_file}")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _java_bookie(file: Path) -> JavaBookie:
    from bkbox.config.java_properties import parse
    from bkbox.takeover.java_bookie import java_bookie

    try:
        text = read_small(file).decode("utf-8-sig")
    except OSError as error:
        raise ConfigError([f"{file}: cannot be read: {error.strerror}"]) from None
    except UnicodeDecodeError as error:
        raise ConfigError([f"{file}: byte {error.start} is not UTF-8"]) from None
    return java_bookie(parse(text, str(file)), str(file))


def _say_time(plan: TakeoverPlan) -> None:
    """Prints how much there is to convert and, by a sample that is read, about how long it takes."""
    began_s = time.monotonic()
    sampled = 0
    for log in plan.logs[:1]:
        with open(log.path, "rb") as file:
            while sampled < _SAMPLE_BYTES and (block := file.read(1 << 20)):
                sampled += len(block)
    took_s = time.monotonic() - began_s
    estimate = ""
    if sampled:
        estimate = f", about {plan.total_bytes / sampled * took_s * _PASSES:,.0f} s"
    message(f"{size(plan.total_bytes)} to convert{estimate}")
