"""All checks, for those who observe a whole cluster."""

from __future__ import annotations

from bkbox.checks.acknowledged import Acknowledged
from bkbox.checks.check import Check
from bkbox.checks.closed import Closed
from bkbox.checks.contents import Contents
from bkbox.checks.fences import Fences
from bkbox.checks.limbo import Limbo
from bkbox.checks.negatives import Negatives
from bkbox.checks.readable import Readable
from bkbox.checks.removed import Removed
from bkbox.checks.sequence import Sequence


def all_checks() -> list[Check]:
    """One of each, knowing nothing yet."""
    return [
        Acknowledged(),
        Closed(),
        Contents(),
        Fences(),
        Limbo(),
        Negatives(),
        Readable(),
        Removed(),
        Sequence(),
    ]
