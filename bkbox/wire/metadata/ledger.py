"""The metadata of one ledger as a value. The stored form is in ledger_metadata.py.

Source: LedgerMetadata.java, DataFormats.proto (LedgerMetadataFormat).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

from bkbox.base.ids import NO_ENTRY, BookieId, EntryId, LedgerId


class LedgerState(IntEnum):
    """States of a ledger; the numbers are those of the metadata."""

    OPEN = 1
    IN_RECOVERY = 2
    CLOSED = 3


class DigestType(IntEnum):
    """Digests of entries, by their numbers in metadata; Java's client calls HMAC MAC."""

    CRC32 = 1
    HMAC = 2
    CRC32C = 3
    DUMMY = 4


ACK_AFTER = "bkbox.ack_after"
"""Key of the custom metadata for a ledger's durability. Its one value is ``sync``: every bookie syncs an entry before
it acknowledges it, also one with ``ack_after = write``. Writers and recoveries of bkbox request that with each add,
since bookies never see the metadata; Java's writers do not.
"""


@dataclass(frozen=True, slots=True)
class Fragment:
    """Entries from first_entry up to the next fragment lie on this ensemble.

    ``unknown``: see LedgerMetadata.
    """

    first_entry: EntryId
    ensemble: tuple[BookieId, ...]
    unknown: bytes = b""


@dataclass(frozen=True, slots=True)
class LedgerMetadata:
    """One ledger. ``last_entry`` and ``length`` (payload bytes) are meaningful only if CLOSED.

    ``unknown``: fields that a newer BookKeeper wrote, in the form of ``format_version``; an update of the ledger
    keeps them. Likewise ``custom_unknown``, by the key of the custom metadata.
    """

    ledger_id: LedgerId
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    state: LedgerState
    fragments: tuple[Fragment, ...]
    last_entry: EntryId = NO_ENTRY
    length: int = 0
    digest_type: DigestType | None = DigestType.CRC32C
    password: bytes | None = b""
    custom: tuple[tuple[str, bytes], ...] = ()
    ctime_ms: int = -1
    store_ctime: bool = False
    format_version: int = 3
    creator_token: int = 0
    unknown: bytes = b""
    custom_unknown: tuple[tuple[str, bytes], ...] = ()

    @property
    def last_fragment(self) -> Fragment:
        return self.fragments[-1]

    def fragment_of(self, entry: int) -> Fragment:
        """The fragment that covers an entry id >= 0."""
        for fragment in reversed(self.fragments):
            if fragment.first_entry <= entry:
                return fragment
        raise ValueError(f"entry {entry} lies before the first fragment of ledger {self.ledger_id}")

    def bookies(self) -> frozenset[BookieId]:
        """Every bookie that any ensemble names."""
        return frozenset(bookie for fragment in self.fragments for bookie in fragment.ensemble)

    @property
    def synced(self) -> bool:
        """True if entries are to be on disk before they are acknowledged, whatever the bookies' ``ack_after``. An
        unknown value counts as the same: it is the strongest there is.
        """
        return any(key == ACK_AFTER for key, _value in self.custom)

    def with_state(self, state: LedgerState) -> LedgerMetadata:
        return replace(self, state=state, creator_token=0)
