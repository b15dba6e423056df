"""What phase two has done and what it is stuck on, as the status document shows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Progress:
    """Counts since the repair worker began; ledgers are those that were in limbo at any time since then."""

    ledgers: int = 0
    done: int = 0
    entries_checked: int = 0
    entries_missing: int = 0
    entries_copied: int = 0
    bytes_copied: int = 0
    blockers: dict[int, tuple[str, str]] = field(default_factory=dict)

    def eta_s(self, elapsed_s: float) -> float | None:
        """Seconds left at the present rate of ledgers; None while nothing is done or something is stuck."""
        left = self.ledgers - self.done
        if left == 0:
            return 0.0
        if self.done == 0 or self.blockers:
            return None
        return elapsed_s / self.done * left

    def values(self, elapsed_s: float) -> dict[str, Any]:
        return {
            "ledgers": self.ledgers,
            "done": self.done,
            "entries_checked": self.entries_checked,
            "entries_missing": self.entries_missing,
            "entries_copied": self.entries_copied,
            "bytes_copied": self.bytes_copied,
            "eta_s": self.eta_s(elapsed_s),
            "blockers": [
                {"ledger": ledger, "reason": reason, "what_to_do": advice}
                for ledger, (reason, advice) in sorted(self.blockers.items())[:100]
            ],
        }
