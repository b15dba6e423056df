"""The state of a ledger as Java's bookie keeps it, whatever storage it is in."""

from __future__ import annotations

from bkbox.base.values import frozen_struct


@frozen_struct
class JavaLedger:
    """``master_key``: empty or zeros stand for one that is not known yet. ``explicit_lac``: the packet, None without
    one. ``limbo``: the bookie may have lost entries of the ledger, which is fenced then.
    """

    master_key: bytes = b""
    fenced: bool = False
    explicit_lac: bytes | None = None
    limbo: bool = False

    @property
    def known_key(self) -> bytes | None:
        """The master key, None if it is not known."""
        return self.master_key if any(self.master_key) else None
