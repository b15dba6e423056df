"""The ledgers of a bookie that are in limbo, and requests to a running bookie for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bkbox.api.admin.client import Address, ask
from bkbox.api.admin.socket_path import LIMBO_URL
from bkbox.base.documents import from_document

LIMIT_MAX = 1_000
"""Maximum number of ledgers in one page."""


@dataclass(frozen=True, slots=True)
class LimboLedger:
    """``path``: of its disk; ``reason`` and ``what_to_do``: what keeps it from being repaired, empty where nothing
    does or it is not known."""

    ledger: int
    path: str
    reason: str = ""
    what_to_do: str = ""


@dataclass(frozen=True, slots=True)
class LimboPage:
    """``more``: whether others follow."""

    ledgers: tuple[LimboLedger, ...]
    more: bool


def page(address: Address, after: int = -1, limit: int = LIMIT_MAX) -> LimboPage:
    """Ledgers with an id greater than ``after``, ascending. Raises what ``ask`` raises."""
    query = f"?limit={limit}" if after < 0 else f"?after={after}&limit={limit}"
    return from_document(LimboPage, ask(address, "GET", f"{LIMBO_URL}{query}"), "limbo")


def ledgers(address: Address) -> Iterator[LimboLedger]:
    """All ledgers in limbo, page by page: not a snapshot."""
    after = -1
    while True:
        found = page(address, after)
        yield from found.ledgers
        if not found.more or not found.ledgers:
            return
        after = found.ledgers[-1].ledger
