"""What the tables of an audit name."""

from __future__ import annotations

from pathlib import Path

from bkbox.audit.tables import read_table, rows_of


def places(folder: Path, table: str) -> set[tuple[int, int, str]]:
    """(ledger, entry, bookie) of all rows, of which each has a range of entries."""
    return {
        (row.ledger_id, entry, row.bookie)
        for row in rows_of(table, read_table(folder, table))
        for entry in range(row.first_entry, row.last_entry + 1)
    }
