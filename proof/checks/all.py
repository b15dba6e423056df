"""All checks, for observers of a whole cluster."""

from __future__ import annotations

from proof.checks.acknowledged import Acknowledged
from proof.checks.check import Check
from proof.checks.closed import Closed
from proof.checks.contents import Contents
from proof.checks.fences import Fences
from proof.checks.limbo import Limbo
from proof.checks.negatives import Negatives
from proof.checks.readable import Readable
from proof.checks.removed import Removed
from proof.checks.sequence import Sequence


def all_checks() -> list[Check]:
    """One instance of each check, without any observation yet."""
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
