"""``bkbox cluster …``: creates a cluster, and lists its bookies."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass

import click

from bkbox import metadata as stores
from bkbox.api.admin.cluster_members import DOWN, READ_ONLY, WRITABLE, Member, members_of
from bkbox.cli.cluster.status import status
from bkbox.cli.lib.options import dry_run_option, metadata_option
from bkbox.cli.lib.output import (
    Format,
    message,
    outcome_option,
    output_option,
    print_document,
    print_fields,
    print_table,
    prints,
    watch_option,
)
from bkbox.errors import MetadataError, MetadataUnavailableError, OperatorError
from bkbox.metadata.base import MetadataStore
from bkbox.metadata.tree.store import TreeStore

WAIT_S = 10.0
"""Time-out for the metadata store: an operator waits for the result."""


@click.group(no_args_is_help=True)
def cluster() -> None:
    """Create a cluster, and list its bookies.

    \b
    Example:
      bkbox cluster list --metadata zk://zk1.example.com:2181/ledgers
    """


@cluster.command()
@metadata_option
@dry_run_option
@outcome_option
def init(metadata: str, dry_run: bool) -> None:
    """Make a new, empty cluster; fails if there is one.

    In ZooKeeper and Oxia it is what BookKeeper's "initnewcluster" makes, so that bookies and clients of both
    can join. The layout of its ledgers is hierarchical unless the URI names another one.

    \b
    Example:
      bkbox cluster init --metadata 'zk://zk1:2181;zk2:2181;zk3:2181/ledgers'
    """

    if dry_run:
        _would_make(metadata)
        return

    async def go() -> str:
        await stores.init_cluster(metadata, WAIT_S)
        async with await stores.connect(metadata, WAIT_S) as store:
            return await store.instance_id()

    message(f"made a new cluster, instance id {asyncio.run(go())}")


def _would_make(metadata: str) -> None:
    """Raises OperatorError if there is a cluster already, as ``init`` does."""

    async def go() -> str:
        async with await stores.connect(metadata, WAIT_S) as store:
            return await store.instance_id()

    try:
        there = asyncio.run(go())
    except (OperatorError, MetadataError) as error:
        if isinstance(error, MetadataUnavailableError) and not metadata.startswith("sqlite:"):
            raise
        message(f"would make a new cluster at {metadata}; nothing was changed ({error})")
        return
    raise OperatorError(f"there is a cluster at {metadata} already, instance id {there}")


# ---- info -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Replication:
    """The state of re-replication, the work of BookKeeper's auditor and replication workers."""

    enabled: bool
    auditor: str | None
    under_replicated: int


@dataclass(frozen=True, slots=True)
class Info:
    """A cluster. ``layout`` is None in the embedded store, which has none; ``ledgers`` unless they were counted."""

    metadata: str
    instance_id: str
    layout: str | None
    writable: list[str]
    read_only: list[str]
    down: list[str]
    ledgers: int | None
    replication: Replication


@cluster.command()
@metadata_option
@click.option(
    "--count-ledgers",
    is_flag=True,
    help="Count the ledgers, which may take long if there are many.",
)
@watch_option
@output_option
@prints(Info)
def info(metadata: str, count_ledgers: bool, output: Format) -> None:
    """Show the identity of a cluster, its bookies and the state of re-replication.

    A bookie is "down" if the cluster knows its cookie and it is not registered.

    \b
    Example:
      bkbox cluster info --metadata zk://zk1.example.com:2181/ledgers --count-ledgers
    """
    found = asyncio.run(_info(metadata, count_ledgers=count_ledgers))
    if output != "table":
        print_document(asdict(found), output)
        return
    fields: list[tuple[str, object]] = [
        ("metadata", found.metadata),
        ("instance id", found.instance_id),
        ("layout", found.layout),
        ("writable bookies", found.writable),
        ("read-only bookies", found.read_only),
        ("bookies down", found.down),
        ("ledgers", found.ledgers if count_ledgers else "not counted (--count-ledgers)"),
        ("replication enabled", found.replication.enabled),
        ("auditor", found.replication.auditor),
        ("under-replicated", found.replication.under_replicated),
    ]
    print_fields(fields)


async def _info(metadata: str, *, count_ledgers: bool) -> Info:
    async with await stores.connect(metadata, WAIT_S) as store:
        members = await members_of(store)
        ledgers = None
        if count_ledgers:
            ledgers = sum([len(page) async for page in store.ledger_ranges()])
        tree = store.under_replication
        return Info(
            metadata=metadata,
            instance_id=await store.instance_id(),
            layout=_layout(store),
            writable=[each.id for each in members if each.mode == WRITABLE],
            read_only=[each.id for each in members if each.mode == READ_ONLY],
            down=[each.id for each in members if each.mode == DOWN],
            ledgers=ledgers,
            replication=Replication(
                enabled=await tree.enabled(),
                auditor=await tree.auditor(),
                under_replicated=await tree.count(),
            ),
        )


def _layout(store: MetadataStore) -> str | None:
    return store.layout.value if isinstance(store, TreeStore) else None


# ---- list -------------------------------------------------------------------------------------


@cluster.command("list")
@metadata_option
@click.option("--rw", "only", flag_value=WRITABLE, help="Only bookies that take new entries.")
@click.option("--ro", "only", flag_value=READ_ONLY, help="Only bookies that are read-only.")
@click.option("--all", "only", flag_value="all", help="All bookies; the default.")
@watch_option
@output_option
@prints(list[Member])
def list_bookies(metadata: str, only: str | None, output: Format) -> None:
    """List the bookies of a cluster, with their addresses, versions and admin APIs.

    A bookie is "down" if the cluster knows its cookie and it is not registered.

    "bkbox placement explain" shows racks and room.

    \b
    Example:
      bkbox cluster list --metadata zk://zk1.example.com:2181/ledgers --rw
    """

    async def go() -> list[Member]:
        async with await stores.connect(metadata, WAIT_S) as store:
            return await members_of(store)

    found = [each for each in asyncio.run(go()) if only in (None, "all", each.mode)]
    if output != "table":
        print_document([asdict(member) for member in found], output)
    else:
        print_table(
            ["bookie", "address", "mode", "version", "admin"],
            [(each.id, each.address, each.mode, each.version, each.admin) for each in found],
        )


cluster.add_command(status)
