"""Who a ledger belongs to, as its custom metadata say it."""

from __future__ import annotations

from bkbox.wire.metadata.ledger import LedgerMetadata

OWNER_KEYS = ("owner", "application")
"""Custom metadata that name an owner; the second is what Pulsar writes."""

NO_OWNER = "(none)"


def owner_of(metadata: LedgerMetadata) -> str:
    """Who the custom metadata say that a ledger belongs to."""
    custom = dict(metadata.custom)
    for key in OWNER_KEYS:
        if key in custom:
            return custom[key].decode(errors="replace")
    return NO_OWNER
