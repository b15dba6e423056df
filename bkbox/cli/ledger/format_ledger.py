"""Formats ledgers for output."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass

import click

from bkbox.base.text import counted
from bkbox.cli.lib.output import Format, print_document, print_fields, print_table
from bkbox.wire.metadata.ledger import LedgerMetadata, LedgerState
from bkbox.wire.metadata.loss import ENDED, LossRecord, losses_of


@dataclass(frozen=True, slots=True)
class Summary:
    """A ledger in a line; ``last_entry`` and ``length`` are known once it is closed. ``loss``: what it lost if it was
    ended with loss accepted."""

    ledger_id: int
    state: str
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    last_entry: int | None
    length: int | None
    loss: str | None


@dataclass(frozen=True, slots=True)
class LostLedger:
    """A ledger that was ended with loss accepted, and what each ending gave up."""

    ledger_id: int
    state: str
    losses: tuple[LossRecord, ...]


@dataclass(frozen=True, slots=True)
class FragmentView:
    """Entries from ``first_entry`` on are on these bookies."""

    first_entry: int
    ensemble: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ledger(Summary):
    """All of a ledger's metadata but its password. Values of ``custom`` are in base64, and in ``custom_text`` as they
    are where they are text; ``losses``: what was given up where it was ended with loss accepted."""

    digest_type: str | None
    ctime_ms: int | None
    custom: dict[str, str]
    fragments: tuple[FragmentView, ...]
    custom_text: dict[str, str]
    losses: tuple[LossRecord, ...]


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
        loss="; ".join(record.losses for record in losses_of(found)) or None,
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
        custom_text=_texts(found),
        losses=losses_of(found),
    )
    if output != "table":
        print_document(asdict(shown), output)
        return
    fields = [
        *((name, value) for name, value in asdict(summary(found)).items() if name != "loss"),
        ("digest_type", shown.digest_type),
        ("ctime_ms", shown.ctime_ms),
        *(
            (
                "custom",
                f"{key} = {shown.custom_text.get(key) or _not_text(value)}",
            )
            for key, value in found.custom
            if key != ENDED
        ),
        *(("loss", record.text) for record in shown.losses),
    ]
    print_fields(fields)
    click.echo()
    print_table(
        ["first entry", "ensemble"],
        [(each.first_entry, each.ensemble) for each in shown.fragments],
        title="fragments",
    )


def print_lost(found: Iterable[LedgerMetadata], output: Format) -> None:
    """Prints those of these ledgers that were closed with loss accepted."""
    lost = [
        LostLedger(each.ledger_id, each.state.name, records)
        for each in found
        if (records := losses_of(each))
    ]
    if output != "table":
        print_document([asdict(each) for each in lost], output)
        return
    print_table(
        ["ledger", "end", "ended", "by", "run", "what is lost"],
        [
            (each.ledger_id, record.end, record.when, record.by, record.run, record.losses)
            for each in lost
            for record in each.losses
        ],
    )


def _not_text(value: bytes) -> str:
    return f"{counted(len(value), 'byte')}, not text" if value else "(empty)"


def _texts(found: LedgerMetadata) -> dict[str, str]:
    texts = {}
    for key, value in found.custom:
        with suppress(UnicodeDecodeError):
            texts[key] = value.decode()
    return texts
