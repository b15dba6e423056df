"""The owner of a ledger, as named in its custom metadata."""

from __future__ import annotations

from bkbox.wire.metadata.ledger import LedgerMetadata

OWNER_KEYS = ("owner", "application")
"""Keys of the custom metadata that name an owner; Pulsar writes the second."""

NO_OWNER = "(none)"


def owner_of(metadata: LedgerMetadata) -> str:
    """The owner in the custom metadata."""
    custom = dict(metadata.custom)
    for key in OWNER_KEYS:
        if key in custom:
            return custom[key].decode(errors="replace")
    return NO_OWNER
