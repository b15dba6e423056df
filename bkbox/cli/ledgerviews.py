"""How a ledger's metadata is shown."""

from __future__ import annotations

import base64

import click

from bkbox.cli.output import Format, print_fields, print_json, print_table
from bkbox.wire.ledger import LedgerMetadata, LedgerState


def summary(found: LedgerMetadata) -> dict[str, object]:
    closed = found.state is LedgerState.CLOSED
    return {
        "ledger_id": found.ledger_id,
        "state": found.state.name,
        "ensemble_size": found.ensemble_size,
        "write_quorum": found.write_quorum,
        "ack_quorum": found.ack_quorum,
        "last_entry": found.last_entry if closed else None,
        "length": found.length if closed else None,
    }


def print_ledger(found: LedgerMetadata, output: Format) -> None:
    digest = None if found.digest_type is None else found.digest_type.name
    fragments = [(each.first_entry, list(each.ensemble)) for each in found.fragments]
    if output == "json":
        print_json(
            summary(found)
            | {
                "digest_type": digest,
                "ctime_ms": found.ctime_ms,
                "custom": {key: base64.b64encode(value).decode() for key, value in found.custom},
                "fragments": [
                    {"first_entry": first, "ensemble": ensemble} for first, ensemble in fragments
                ],
            }
        )
        return
    print_fields([*summary(found).items(), ("digest_type", digest), ("ctime_ms", found.ctime_ms)])
    click.echo()
    print_table(["first entry", "ensemble"], fragments, title="fragments")
