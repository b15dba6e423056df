"""Every row of the tables comes out as it stands there: outcome, states, transitions, levels or length of the trace."""

from __future__ import annotations

import pytest

from bkbox.base.values import replaced
from proof.model.options import Corrections, Options
from proof.model.search import search
from proof.model.termination import closable
from tests.model.rows import LONG, ROWS, Row

CHOSEN = [pytest.param(row, id=f"{table}: {row.name}") for table, row in ROWS if row.quick or LONG]


@pytest.mark.parametrize("row", CHOSEN)
@pytest.mark.timeout(1_800)
def test_a_search_comes_to_what_the_table_says(row: Row) -> None:
    result = search(row.options, fold=row.fold)
    found = result.statistics
    assert (result.broken or "safe") == row.outcome
    assert result.exhausted == (row.outcome == "safe")
    assert (found.distinct, found.generated, found.levels) == (
        row.distinct,
        row.generated,
        row.levels,
    )
    assert len(result.trace) == (0 if row.outcome == "safe" else row.levels)


@pytest.mark.parametrize(
    ("write_quorum", "ack_quorum", "limbo", "can_close"),
    [
        (2, 1, 1, False),
        (3, 1, 1, False),
        (2, 2, 1, True),
        (3, 2, 1, True),
        (3, 3, 1, True),
        (2, 2, 2, False),
        (3, 2, 2, False),
    ],
)
@pytest.mark.parametrize("responses_have_ids", [True, False])
def test_recovery_ends_with_fewer_bookies_in_limbo_than_an_ack_quorum(
    write_quorum: int, ack_quorum: int, limbo: int, can_close: bool, responses_have_ids: bool
) -> None:
    sizes = Options(bookies=write_quorum, write_quorum=write_quorum, ack_quorum=ack_quorum)
    corrections = replaced(Corrections(), responses_have_ids=responses_have_ids)
    result = closable(replaced(sizes, corrections=corrections), limbo)
    assert bool(result.broken) == can_close
    assert result.exhausted != can_close
