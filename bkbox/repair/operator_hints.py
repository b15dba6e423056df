"""Advice for the operator about a ledger that could not be replicated."""

from __future__ import annotations

from bkbox.errors import (
    BkboxError,
    NoSuchEntryError,
    NotEnoughBookiesError,
    RecoveryAbortedError,
)

_BY_ERROR: tuple[tuple[type[BkboxError], str], ...] = (
    (
        NoSuchEntryError,
        "bring back a bookie that had these entries; if none can come back they are lost, and only deleting the ledger "
        "ends this",
    ),
    (
        NotEnoughBookiesError,
        "start another bookie, or bring the lost one back; copying goes on by itself",
    ),
    (
        RecoveryAbortedError,
        "wait until more bookies of its ensemble are up and out of limbo; it is tried again by itself",
    ),
)
_AGAIN = "nothing: it is tried again by itself; see whether the bookies that are named are well"


def advice_for(error: BkboxError) -> str:
    """One sentence of advice for the operator about this error."""
    return next((text for kind, text in _BY_ERROR if isinstance(error, kind)), _AGAIN)
