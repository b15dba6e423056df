"""Patches that switch off the safety measures of repair, re-replication and collection; see mutation_patches.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bkbox.protocol import repair
from bkbox.repair.copy import fragment_copy
from bkbox.repair.limbo.limbo_repair import LimboRepair
from bkbox.repair.space import gc
from bkbox.wire.metadata.ledger import LedgerState
from proof.sim.patching import Change, method


def limbo_cleared_early() -> tuple[Change, ...]:
    return ((repair, "may_leave_limbo", lambda *values, **named: True),)


def repair_without_recovery() -> tuple[Change, ...]:
    return ((repair, "needs_recovery", lambda metadata, bookie: False),)


def repair_trusts_index() -> tuple[Change, ...]:
    async def unreadable(*_of_entries: Any) -> list[range]:
        return []

    return ((LimboRepair, "_unreadable", unreadable),)


def named_without_copies() -> tuple[Change, ...]:
    """Copies nothing."""
    return ((fragment_copy, "transfers", lambda *_of_fragment: ()),)


def collects_named() -> tuple[Change, ...]:
    """A closed ledger is collected although metadata name the bookie."""

    def changed(real: Callable[..., Any]) -> Callable[..., Any]:
        async def scan(self: Any, only: set[int] | None) -> Any:
            found = await real(self, only)
            for ledger in list(self._here(only)):
                metadata = await self._read(ledger)
                if metadata is not None and metadata.state is LedgerState.CLOSED:
                    found.gone.add(ledger)
                    found.needed.discard(ledger)
            return found

        return scan

    return method(gc._Run, "scan", changed)
