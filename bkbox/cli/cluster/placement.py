"""``bkbox placement explain``: shows the bookies that a new ledger would get, and why not the others."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from bkbox.base.ids import BookieId, bookie_id
from bkbox.cli.lib.options import FILE, metadata_option
from bkbox.cli.lib.output import (
    Format,
    message,
    output_option,
    print_document,
    print_table,
    prints,
    size,
)
from bkbox.client import connect
from bkbox.errors import InvalidIdError, NotEnoughBookiesError
from bkbox.protocol.placement import Placement, PlacementDecision
from bkbox.protocol.quorum import QuorumSizes


@click.group(no_args_is_help=True)
def placement() -> None:
    """Show how bookies are chosen for ledgers.

    \b
    Example:
      bkbox placement explain -E 3 -Q 3 -A 2 --metadata sqlite:cluster.db
    """


def _parse_bookie(text: str) -> BookieId:
    try:
        return bookie_id(text)
    except InvalidIdError as error:
        raise click.BadParameter(str(error)) from None


@placement.command()
@metadata_option
@click.option(
    "-E",
    "--ensemble",
    type=int,
    default=3,
    show_default=True,
    help="Bookies that the ledger is spread over.",
)
@click.option("-Q", "--write-quorum", type=int, help="Copies of each entry [default: ensemble].")
@click.option(
    "-A", "--ack-quorum", type=int, help="Answers before an entry counts [default: Q//2+1]."
)
@click.option(
    "--exclude",
    type=_parse_bookie,
    multiple=True,
    metavar="ID",
    help="A bookie to leave out; may be given several times.",
)
@click.option(
    "--topology-script",
    type=FILE,
    metavar="FILE",
    help="Script that prints the rack of an address (networkTopologyScriptFileName of Java).",
)
@click.option(
    "--rack-map",
    metavar="FILE|znode:PATH",
    help='Racks as "pulsar-admin bookies racks-placement" prints them, or as in znode:/bookies.',
)
@output_option
@prints(dict[str, object])
def explain(
    metadata: str,
    ensemble: int,
    write_quorum: int | None,
    ack_quorum: int | None,
    exclude: tuple[BookieId, ...],
    topology_script: Path | None,
    rack_map: str | None,
    output: Format,
) -> None:
    """Show which bookies a new ledger would get now, and why not the others.

    Asks every bookie for its free space. Where several would do it is chance, in proportion to
    their weights: another run may choose others. Exit code 7 means that there are too few bookies.

    \b
    Example:
      bkbox placement explain -E 3 -Q 3 -A 2 --metadata sqlite:cluster.db
      bkbox placement explain -E 5 -Q 3 -A 2 --exclude 10.0.0.7:3181 \\
          --topology-script /etc/bookkeeper/racks.sh --metadata sqlite:cluster.db
    """
    write_quorum = ensemble if write_quorum is None else write_quorum
    ack_quorum = write_quorum // 2 + 1 if ack_quorum is None else ack_quorum
    sizes = QuorumSizes(ensemble, write_quorum, ack_quorum)
    script = None if topology_script is None else str(topology_script)

    async def go() -> Placement:
        async with connect(metadata, topology_script=script, rack_map=rack_map) as client:
            return await client.placer.explain(sizes, exclude)

    found = asyncio.run(go())
    if output != "table":
        print_document(_json(sizes, found), output)
    else:
        _print(found)
    if topology_script is None and rack_map is None:
        message("note: without --topology-script or --rack-map every bookie is in one rack")
    for stranger in sorted({*exclude} - {each.candidate.bookie for each in found.decisions}):
        message(f"warning: --exclude {stranger}: the cluster has no such bookie")
    if not found.is_complete:
        raise NotEnoughBookiesError(found.shortage(ensemble))


def _print(found: Placement) -> None:
    print_table(
        ["bookie", "rack", "free", "weight", "verdict"],
        [
            (
                each.candidate.bookie,
                each.candidate.rack,
                None if each.candidate.free_bytes is None else size(each.candidate.free_bytes),
                None if each.weight is None else f"{each.weight:.1f}",
                _verdict(each, found),
            )
            for each in found.decisions
        ],
    )
    if found.is_complete:
        click.echo(f"ensemble: {', '.join(map(str, found.ensemble))}")
    for sentence in found.relaxed:
        click.echo(f"relaxed: {sentence}")


def _verdict(each: PlacementDecision, found: Placement) -> str:
    if each.reason:
        return f"{each.verdict.value}: {each.reason}"
    return "chosen" if found.is_complete else "usable"


def _json(sizes: QuorumSizes, found: Placement) -> dict[str, Any]:
    return {
        "ensemble_size": sizes.ensemble_size,
        "write_quorum": sizes.write_quorum,
        "ack_quorum": sizes.ack_quorum,
        "ensemble": list(found.ensemble) if found.is_complete else None,
        "relaxed": list(found.relaxed),
        "bookies": [
            {
                "bookie": each.candidate.bookie,
                "host": each.candidate.host,
                "rack": each.candidate.rack,
                "mode": each.candidate.mode.value,
                "reachable": not each.candidate.suspect,
                "free_bytes": each.candidate.free_bytes,
                "weight": each.weight,
                "verdict": each.verdict.name.lower(),
                "reason": each.reason or None,
            }
            for each in found.decisions
        ],
    }
