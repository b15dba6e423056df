"""How a ledger is shown."""

from __future__ import annotations

import base64
from dataclasses import asdict, dataclass

import click

from bkbox.cli.output import Format, message, print_document, print_fields, print_table
from bkbox.client.client import Client
from bkbox.errors import NotEnoughBookiesError
from bkbox.protocol.quorum import QuorumSizes
from bkbox.wire.ledger import LedgerMetadata, LedgerState


@dataclass(frozen=True, slots=True)
class Summary:
    """A ledger in a line; ``last_entry`` and ``length`` are known once it is closed."""

    ledger_id: int
    state: str
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    last_entry: int | None
    length: int | None


@dataclass(frozen=True, slots=True)
class FragmentView:
    """Entries from ``first_entry`` on are on these bookies."""

    first_entry: int
    ensemble: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ledger:
    """All of a ledger's metadata but its password; values of ``custom`` are in base64."""

    ledger_id: int
    state: str
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    last_entry: int | None
    length: int | None
    digest_type: str | None
    ctime_ms: int | None
    custom: dict[str, str]
    fragments: tuple[FragmentView, ...]


def summary(found: LedgerMetadata) -> Summary:
    closed = found.state is LedgerState.CLOSED
    return Summary(
        ledger_id=found.ledger_id,
        state=found.state.name,
        ensemble_size=found.ensemble_size,
        write_quorum=found.write_quorum,
        ack_quorum=found.ack_quorum,
        last_entry=found.last_entry if closed else None,
        length=found.length if closed else None,
    )


def print_ledger(found: LedgerMetadata, output: Format) -> None:
    shown = Ledger(
        **asdict(summary(found)),
        digest_type=None if found.digest_type is None else found.digest_type.name,
        ctime_ms=found.ctime_ms,
        custom={key: base64.b64encode(value).decode() for key, value in found.custom},
        fragments=tuple(
            FragmentView(each.first_entry, tuple(map(str, each.ensemble)))
            for each in found.fragments
        ),
    )
    if output != "table":
        print_document(asdict(shown), output)
        return
    listed = ("digest_type", shown.digest_type), ("ctime_ms", shown.ctime_ms)
    print_fields([*asdict(summary(found)).items(), *listed])
    click.echo()
    print_table(
        ["first entry", "ensemble"],
        [(each.first_entry, each.ensemble) for each in shown.fragments],
        title="fragments",
    )


async def would_create(
    client: Client, ensemble: int, write_quorum: int | None, ack_quorum: int | None
) -> None:
    """Say what a new ledger would get. Raises NotEnoughBookiesError, QuorumSizeError."""
    write = ensemble if write_quorum is None else write_quorum
    ack = write // 2 + 1 if ack_quorum is None else ack_quorum
    found = await client.placer.explain(QuorumSizes(ensemble, write, ack))
    if not found.is_complete:
        raise NotEnoughBookiesError("too few bookies: see `bkbox placement explain`")
    bookies = ", ".join(map(str, found.ensemble))
    message(f"would create a ledger, now on {bookies}; nothing was changed")
