"""The ledgers of a cluster that were ended with loss accepted, and how many entries are known to be lost."""

from __future__ import annotations

from contextlib import suppress
from textwrap import shorten
from typing import TYPE_CHECKING

from bkbox.api.admin.status import EndedLedger, Losses
from bkbox.base.ids import LedgerId
from bkbox.errors import NoSuchLedgerError
from bkbox.wire.metadata.loss import LossRecord, losses_of, lost_entries

if TYPE_CHECKING:
    from bkbox.metadata.base import MetadataStore

_LISTED = 100
_OTHERS_READ = 100
"""Others that are read by one inspection: those first whose records have not been read for longest."""
_RECORD_CHARACTERS = 300


class EndedLedgers:
    """Reads the records of the newest ledgers at each inspection, and those of all others in turn."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._entries: dict[LedgerId, int] = {}
        """Entries that are known to be lost, by ledger; the one that was read last is the last."""

    async def inspect(self) -> Losses:
        """Raises MetadataError."""
        ended = await self._store.ended_ledgers()
        newest, older = ended[-_LISTED:], ended[:-_LISTED]
        listed = []
        for ledger in newest:
            records = await self._records(ledger)
            texts = (shorten(each.text, _RECORD_CHARACTERS, placeholder=" …") for each in records)
            if records:
                listed.append(EndedLedger(ledger, tuple(texts)))
        self._entries = {key: count for key, count in self._entries.items() if key in set(ended)}
        order = {ledger: place for place, ledger in enumerate(self._entries)}
        for ledger in sorted(older, key=lambda each: order.get(each, -1))[:_OTHERS_READ]:
            await self._records(ledger)
        complete = self._entries.keys() >= set(ended)
        lost = sum(self._entries.values()) if complete else None
        return Losses(len(older) + len(listed), tuple(listed), entries=lost)

    async def _records(self, ledger: LedgerId) -> tuple[LossRecord, ...]:
        """None of a ledger that other software has deleted."""
        found: tuple[LossRecord, ...] = ()
        with suppress(NoSuchLedgerError):
            found = losses_of((await self._store.read_ledger(ledger)).value)
        self._entries.pop(ledger, None)
        self._entries[ledger] = lost_entries(found)
        return found
