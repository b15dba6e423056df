"""Formats the failures of commands that process many ledgers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bkbox.cli.lib.output import print_table


@dataclass(frozen=True, slots=True)
class LedgerFailure:
    """A ledger, and why it is not done."""

    ledger: int
    why: str


def print_failures(found: Sequence[LedgerFailure]) -> None:
    """Prints a table; nothing without failures."""
    if found:
        print_table(["ledger", "why it is not done"], [(each.ledger, each.why) for each in found])
