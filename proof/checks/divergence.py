"""No divergence: no client considers an entry beyond the end of a closed ledger as confirmed.

An acknowledged entry beyond the end is lost data. Source: BP-46, scenarios 1 and 2.
"""

from __future__ import annotations

from collections.abc import Iterable

NAME = "no-divergence"


def no_divergence(closed_last: int | None, lacs: Iterable[int]) -> bool:
    """``closed_last``: the last entry of the ledger, None until it is closed; ``lacs``: of its clients."""
    return closed_last is None or all(lac <= closed_last for lac in lacs)
