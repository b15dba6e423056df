"""Quorum arithmetic: how many responses of which kind decide something.

E = ensemble size, WQ = write quorum, AQ = ack quorum, E >= WQ >= AQ >= 1. An entry lies on its write set: WQ bookies
of the ensemble. It is acknowledged once AQ of them hold it, so

- it *cannot* have been acknowledged once QC = WQ - AQ + 1 bookies of its write set said no: fewer than AQ are left;
- *no* write set can still collect AQ acknowledgements once every AQ bookies of it hold a fenced one. With E = WQ that
  is EC = E - AQ + 1 fenced bookies; with striping every write set has to satisfy it.

Both rest on distinguishing 'no' from 'unknown' (``Evidence``). Source: the protocol document,
RoundRobinDistributionSchedule.java.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from bkbox.errors import QuorumSizeError
from bkbox.wire.codes import Evidence
from bkbox.wire.write_set import write_set


@dataclass(frozen=True, slots=True)
class QuorumSizes:
    """E, WQ and AQ of one ledger, checked: raises QuorumSizeError unless E >= WQ >= AQ >= 1."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int

    def __post_init__(self) -> None:
        if not self.ensemble_size >= self.write_quorum >= self.ack_quorum >= 1:
            raise QuorumSizeError(
                f"ensemble size {self.ensemble_size}, write quorum {self.write_quorum} and "
                f"ack quorum {self.ack_quorum} do not fit: "
                f"ensemble size >= write quorum >= ack quorum >= 1"
            )

    @property
    def negative_threshold(self) -> int:
        """QC: the number of negatives of a write set that proves that the entry was never acknowledged."""
        return self.write_quorum - self.ack_quorum + 1

    def write_set(self, entry: int) -> tuple[int, ...]:
        """Positions in the ensemble that hold the entry, in write order."""
        return write_set(entry, self.ensemble_size, self.write_quorum)

    def contain_ack_quorum(self, positions: Collection[int]) -> bool:
        """True if AQ of these positions lie in one write set, so that they alone could acknowledge an entry."""
        return any(
            sum(position in positions for position in self.write_set(start)) >= self.ack_quorum
            for start in range(self.ensemble_size)
        )

    def covered(self, heard: Collection[int]) -> bool:
        """True if the positions not heard from can acknowledge nothing among themselves."""
        return not self.contain_ack_quorum(set(range(self.ensemble_size)).difference(heard))

    def warnings(self) -> list[str]:
        """Warnings about sizes that are legal and unwise, a sentence each."""
        if self.ack_quorum == 1 and self.write_quorum > 1:
            return [
                f"ack quorum 1 of write quorum {self.write_quorum}: an entry is acknowledged when "
                f"one bookie holds it, and one bookie that cannot say what it lost keeps the "
                f"ledger from being recovered"
            ]
        return []


class ReadOutcome(Enum):
    """The conclusion from a write set's responses about one entry."""

    PENDING = "pending"
    POSITIVE = "positive"
    NEGATIVE = "negative"
    UNKNOWN = "unknown"


def read_outcome(
    evidence: Collection[Evidence], replicas: int, negatives_needed: int
) -> ReadOutcome:
    """Decide a read by the responses of one entry from ``replicas`` bookies.

    One positive is enough, for it carries the entry. ``negatives_needed`` is QC in a recovery, where the question is
    whether the entry can have been acknowledged, and WQ in a normal read, where any bookie may still hold it.
    """
    statuses = list(evidence)
    if Evidence.POSITIVE in statuses:
        return ReadOutcome.POSITIVE
    if statuses.count(Evidence.NEGATIVE) >= negatives_needed:
        return ReadOutcome.NEGATIVE
    if len(statuses) >= replicas:
        return ReadOutcome.UNKNOWN
    return ReadOutcome.PENDING
