"""Ledgers and their copies for the tests of audit and re-replication."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import strategies as st

from bkbox.base.ids import BookieId, EntryId, LedgerId
from bkbox.wire.metadata.ledger import Fragment, LedgerMetadata, LedgerState
from bkbox.wire.write_set import write_set

A, B, C, D = (BookieId(name) for name in ("a:1", "b:2", "c:3", "d:4"))


def ledger(
    *ensembles: str,
    wq: int | None = None,
    state: LedgerState = LedgerState.CLOSED,
    last: int = -1,
    size: int = 4,
) -> LedgerMetadata:
    """Ensembles as letters, one fragment each of ``size`` entries."""
    names = {"a": A, "b": B, "c": C, "d": D}
    fragments = tuple(
        Fragment(EntryId(size * at), tuple(names[letter] for letter in ensemble))
        for at, ensemble in enumerate(ensembles)
    )
    quorum = len(ensembles[0]) if wq is None else wq
    return LedgerMetadata(
        LedgerId(1), len(ensembles[0]), quorum, quorum, state, fragments, last_entry=EntryId(last)
    )


def copies_by_entry(metadata: LedgerMetadata) -> dict[int, set[BookieId]]:
    """Every settled entry and who has to hold it, entry by entry."""
    closed = metadata.state is LedgerState.CLOSED
    end = metadata.last_entry if closed else metadata.last_fragment.first_entry - 1
    return {
        entry: {
            metadata.fragment_of(entry).ensemble[at]
            for at in write_set(entry, metadata.ensemble_size, metadata.write_quorum)
        }
        for entry in range(end + 1)
    }


def runs(entries: set[int]) -> Iterator[range]:
    found: list[range] = []
    for entry in sorted(entries):
        if found and found[-1].stop == entry:
            found[-1] = range(found[-1].start, entry + 1)
        else:
            found.append(range(entry, entry + 1))
    return iter(found)


@st.composite
def ledgers(draw: st.DrawFn) -> LedgerMetadata:
    size = draw(st.integers(1, 4))
    wq = draw(st.integers(1, size))
    count = draw(st.integers(1, 4))
    starts = sorted(draw(st.sets(st.integers(1, 30), min_size=count - 1, max_size=count - 1)))
    pool = st.sampled_from((A, B, C, D))
    fragments = tuple(
        Fragment(
            EntryId(start), tuple(draw(st.lists(pool, min_size=size, max_size=size, unique=True)))
        )
        for start in [0, *starts]
    )
    state = draw(st.sampled_from(LedgerState))
    last = draw(st.integers(-1, 35)) if state is LedgerState.CLOSED else -1
    return LedgerMetadata(
        LedgerId(1), size, wq, wq, state, fragments, last_entry=EntryId(last), length=last + 1
    )
