"""Cutting a cluster into chunks, plans as files, lists of ledgers and conditions, patience."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkbox.audit.bookie_timeouts import RETRY_AFTER_S, UNRESPONSIVE_AFTER, BookieTimeouts
from bkbox.audit.judgement import ranges_of
from bkbox.audit.plan import Action, Step, read_plan, write_plan
from bkbox.audit.report import MEANINGS, _html, _markdown, _Table
from bkbox.audit.run import CHUNK_PROBES, GAP_MAX, Summary, cut
from bkbox.audit.selection import format_ledgers, parse_assign, parse_ledgers, parse_select
from bkbox.base.ids import BookieId, EntryId, LedgerId
from bkbox.errors import ConfigError, OperatorError
from bkbox.wire.metadata.ledger import Fragment, LedgerMetadata, LedgerState

BOOKIE = BookieId("127.0.0.1:3181")


@given(st.sets(st.integers(0, 400)), st.integers(0, 500), st.integers(1, 60))
def test_every_id_is_in_one_chunk(ledgers: set[int], bound: int, size: int) -> None:
    chunks, too_long = cut(ranges_of(sorted(ledgers)), bound, size)
    seen = [each for chunk in chunks for some in chunk.ledgers for each in some]
    probed = [each for chunk in chunks for some in chunk.absent for each in some]
    assert seen == sorted(ledgers)
    assert probed == [each for each in range(bound) if each not in ledgers]
    assert too_long == 0
    assert all(chunk.ledger_count <= size for chunk in chunks)


def test_a_gap_that_is_too_long_is_not_probed() -> None:
    far = 10 * GAP_MAX
    chunks, too_long = cut([range(5), range(far, far + 1)], far + 1)
    assert too_long == far - 5
    assert sum(len(part) for chunk in chunks for part in chunk.absent) == 0
    many, _ = cut([], 10 * CHUNK_PROBES)
    assert len(many) == 10


def test_a_plan_is_what_was_written(tmp_path: Path) -> None:
    steps = [
        Step(Action.COPY, 1, BOOKIE, 0, 9, 10, "", 'missing: "answered", ENOENTRY'),
        Step(Action.OVERWRITE, 1, BOOKIE, 3, 3, 1, "ab" * 32, "divergent"),
        Step(Action.REPLACE, 2, BOOKIE, 0, -1, 0, "", "the bookie is gone"),
        Step(Action.DECIDE, 3, BOOKIE, 4, 4, 1, "cd" * 32, "divergent"),
    ]
    write_plan(tmp_path / "plan.csv", steps)
    assert read_plan(tmp_path / "plan.csv") == steps


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("copy,1,b:1,0,9,10,", "7 columns where there have to be 8"),
        ("mend,1,b:1,0,9,10,,x", "'mend' is not an action: copy, overwrite"),
        ("copy,-4,b:1,0,9,10,,x", "-4"),
        ("copy,1,b:1,9,0,10,,x", "entries 9 to 0 are none"),
        ("overwrite,1,b:1,0,0,1,,x", "has to say by its sha256"),
        ("copy,1,b:1,a,9,10,,x", "'a'"),
    ],
)
def test_lines_that_mean_nothing_are_named(tmp_path: Path, line: str, problem: str) -> None:
    path = tmp_path / "plan.csv"
    path.write_text(f"{','.join(Step._fields)}\n\n{line}\n")
    with pytest.raises(ConfigError) as caught:
        read_plan(path)
    assert str(caught.value).startswith(f"{path}: line 3: ")
    assert problem in str(caught.value)


def test_files_that_are_no_plan(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="cannot be read: No such file"):
        read_plan(tmp_path / "nothing.csv")
    (tmp_path / "other.csv").write_text("a,b\n")
    with pytest.raises(ConfigError, match="line 1 has to be the headings: action,ledger_id"):
        read_plan(tmp_path / "other.csv")


@given(st.sets(st.integers(0, 200), min_size=1))
def test_lists_of_ledgers(ledgers: set[int]) -> None:
    assert parse_ledgers(format_ledgers(sorted(ledgers))) == sorted(ledgers)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "'' is neither an id nor a range"),
        ("1,x", "'x' is neither an id nor a range"),
        ("9-5", "goes backwards"),
        ("0-99999999999", "more than 10,000,000 ledgers"),
        (str(1 << 63), "option ledgers"),
    ],
)
def test_lists_that_mean_nothing(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse_ledgers(text)


def test_assign() -> None:
    assert parse_assign('{"7": [0, 99], "8": [5, 5]}') == {7: (0, 99), 8: (5, 5)}
    for wrong in ("7", '{"7": 5}', '{"7": [5, 1]}', "[]", '{"x": [0, 1]}', '{"7": [0, 1, 2]}'):
        with pytest.raises(ConfigError, match="option assign"):
            parse_assign(wrong)


LEDGER = LedgerMetadata(
    LedgerId(7),
    1,
    1,
    1,
    LedgerState.CLOSED,
    (Fragment(EntryId(0), (BOOKIE,)),),
    last_entry=EntryId(9),
    length=1000,
    custom=(("owner", b"billing"), ("team", b"a b")),
    ctime_ms=1_769_904_000_000,  # 2026-02-01
)


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("owner = billing", True),
        ("owner != billing", False),
        ("owner = billing and state = closed and bytes >= 1000", True),
        ("owner = billing AND entries > 10", False),
        ("ctime >= 2026-01-31", True),
        ("ctime < 2026-01-31T00:00:00+00:00", False),
        ("custom.team = 'a b'", True),
        ("custom.other != x", False),
        ("ledger_id <= 7", True),
    ],
)
def test_conditions(text: str, fits: bool) -> None:
    assert parse_select(text)(LEDGER) is fits


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("owner", "no condition"),
        ("colour = red", "'colour' is not one of ledger_id, owner"),
        ("entries > many", "entries > many"),
        ("ctime > yesterday", "ctime > yesterday"),
    ],
)
def test_conditions_that_mean_nothing(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse_select(text)


def test_patience() -> None:
    now = [0.0]
    timeouts = BookieTimeouts(lambda: now[0])
    for _ in range(UNRESPONSIVE_AFTER - 1):
        timeouts.record_timeout(BOOKIE, "no answer in time")
    assert timeouts.why_unresponsive(BOOKIE) == ""
    timeouts.record_response(BOOKIE)
    for _ in range(UNRESPONSIVE_AFTER):
        assert timeouts.why_unresponsive(BOOKIE) == ""
        timeouts.record_timeout(BOOKIE, "no answer in time")
    assert timeouts.why_unresponsive(BOOKIE) == "no answer in time"
    now[0] = RETRY_AFTER_S
    assert timeouts.why_unresponsive(BOOKIE) == ""
    timeouts.record_timeout(BOOKIE, "again")  # once is enough now
    assert timeouts.why_unresponsive(BOOKIE) == "again"
    timeouts.record_response(BOOKIE)
    assert timeouts.why_unresponsive(BOOKIE) == ""


def test_what_others_called_their_ledgers_is_text_in_the_summary() -> None:
    nasty = "<img src=x onerror=alert(1)> [l](http://x) ![i](y) `c` a|b\u202e\n# head"
    rows = dict.fromkeys((*MEANINGS, "copies_per_rack", "bytes_per_owner"), 0)
    summary = Summary(nasty, "local", 0, 1.0, 1, 1, 1, 1, 1, True, 0, 0, rows, {})
    tables = [_Table("owners", ("owner",), [(nasty,)])]
    made = _markdown("nothing is wrong", summary, tables)
    for never in ("<img", "[l](", "![i]", " `c", " a|b", "\u202e", "\n# head", "http://x"):
        assert never not in made, never
    assert made.count("&lt;img src=x onerror=alert(1)&gt;") == 2
    [row] = [line for line in made.splitlines() if line.startswith("| &lt;img")]
    assert len(re.findall(r"(?<!\\)\|", row)) == 2, "one cell"
    page = _html("nothing is wrong", summary, tables, "")
    assert "<img" not in page
    assert "\u202e" not in page
