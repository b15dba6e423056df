"""The ``JobContext`` of repair in a simulated cluster: it never waits, and reports no progress; the trace has it."""

from __future__ import annotations


class SimJobContext:
    """Implements ``JobContext``."""

    async def checkpoint(
        self,
        *,
        pieces: int = 1,
        disk_bytes: int = 0,
        network_bytes: int = 0,
        metadata_calls: int = 0,
    ) -> int:
        return pieces

    def allowance(self) -> int | None:
        return None

    def expect(
        self, *, ledgers: int | None = None, entries: int | None = None, size: int | None = None
    ) -> None:
        pass

    def add_progress(self, *, ledgers: int = 0, entries: int = 0, size: int = 0) -> None:
        pass

    def count(self, what: str, amount: int = 1) -> None:
        pass

    def set_step(self, step: str, *, standing_by: bool = False) -> None:
        pass

    def block(self, ledger: int, reason: str, what_to_do: str) -> None:
        pass

    def unblock(self, ledger: int) -> None:
        pass
