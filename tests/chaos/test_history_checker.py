"""The judge finds nothing in a history of what may happen, and each change of it that must not pass."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bkbox.errors import CallerError
from proof.chaos.entries import digest, payload
from proof.chaos.history import History, Line, in_order
from proof.chaos.history_checker import Verdict, check_history

ENSEMBLE = ["b1", "b2", "b3"]
SIZES = [3, 3, 2]
LAST = 4


class Clock:
    """A second passes with each look."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def metadata(history: History, version: int | None, state: int, last: int, t: float) -> None:
    fragments = [[0, ENSEMBLE]]
    what = {"state": state, "last": last, "sizes": SIZES, "fragments": fragments}
    history.note("metadata", t=t, ledger=7, version=version, **what)


def write(path: Path) -> list[Line]:
    """A ledger is written, with a fault, closed, and read; in the end all of it, by the judge's client."""
    history = History(path, Clock())
    history.note("run", seed=5, bookies=3, disks=1, ack_after="sync", start=history.start)
    created = history.begin("create", by="writer 0", sizes=SIZES)
    metadata_at = history.now
    history.end(created, "ok", by="writer 0", ledger=7)
    hurt = history.begin("fault", fault="kill-worker", bookie="bookie 1", lasts_s=0)
    for entry in range(LAST + 1):
        data = digest(payload(5, 7, entry))
        add = history.begin("add", by="writer 0", ledger=7, entry=entry, digest=data)
        history.end(add, "ok", ledger=7, entry=entry)
    history.end(hurt, "ok", fault="kill-worker", bookie="bookie 1", back_s=0.5)
    asked = history.begin("lac", by="reader 1", ledger=7)
    history.end(asked, "ok", by="reader 1", ledger=7, lac=2)
    read(history, "reader 1", 0, 2)
    closing = history.begin("close", by="writer 0", ledger=7)
    closed_at = history.now
    history.end(closing, "ok", by="writer 0", ledger=7, last=LAST)
    boot = history.begin("boot", bookie="bookie 1")
    history.end(boot, "ok", bookie="bookie 1", seconds=1.5)
    history.note("look", bookie="bookie 1", pid=1, restarts=1, limbo=0, done=3)
    read(history, "judge", 0, LAST)
    for bookie in ENSEMBLE[:2]:
        history.note("holds", bookie=bookie, ledger=7, ranges=[[0, LAST]])
    stop = history.begin("stop", bookie="bookie 1")
    history.end(stop, "ok", bookie="bookie 1", status=0)
    metadata(history, 0, 1, -1, metadata_at)  # as in a run: late, with the time when it was
    metadata(history, 1, 3, LAST, closed_at)
    history.note("finished", well=True, down=[], limbo=0, deaths=[])
    history.close()
    return [json.loads(line) for line in path.read_text().splitlines()]


def read(history: History, name: str, first: int, last: int) -> None:
    begun = history.begin("read", by=name, ledger=7, first=first, last=last)
    digests = [digest(payload(5, 7, entry)) for entry in range(first, last + 1)]
    history.note("found", id=begun, by=name, ledger=7, first=first, digests=digests)
    history.end(begun, "ok", by=name, ledger=7)


def judged(tmp_path: Path, tamper: Callable[[list[Line]], None]) -> Verdict:
    lines = write(tmp_path / "first.jsonl")
    tamper(lines)
    path = tmp_path / "history.jsonl"
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    return check_history(in_order(path))


def names(verdict: Verdict) -> set[str]:
    return {violation.name for violation in verdict.violations}


def one(lines: list[Line], **what: object) -> Line:
    """The last line with these values."""
    return [line for line in lines if all(line.get(key) == value for key, value in what.items())][
        -1
    ]


def test_nothing_is_wrong_with_what_may_happen(tmp_path: Path) -> None:
    verdict = judged(tmp_path, lambda _lines: None)
    assert verdict.violations == []
    assert verdict.complete
    assert verdict.seed == 5
    assert verdict.done["add", "ok"] == LAST + 1
    assert verdict.entries_read == 3 + LAST + 1
    assert verdict.faults == {"kill-worker": 1}
    assert (verdict.restarts, verdict.limbo_cleared) == (1, 3)
    assert verdict.back_s == {"kill-worker": [0.5], "boot": [1.5]}


def cut(line: Line) -> None:
    line["digests"].pop()


def swap(line: Line) -> None:
    line["digests"].reverse()


def lost(lines: list[Line]) -> None:
    cut(one(lines, kind="found", by="judge"))


def another_value(lines: list[Line]) -> None:
    swap(one(lines, kind="found", by="reader 1"))


def closed_too_early(lines: list[Line]) -> None:
    one(lines, kind="metadata", version=1)["last"] = LAST - 1


def two_ends(lines: list[Line]) -> None:
    one(lines, kind="end", op="close")["last"] = LAST + 1


def told_that_it_is_not_there(lines: list[Line]) -> None:
    one(lines, kind="end", op="read", by="reader 1").update(
        outcome="refused", error="NoSuchEntryError: entry 1", absent=1
    )


def goes_back(lines: list[Line]) -> None:
    asked = one(lines, kind="begin", op="lac")
    ended = one(lines, kind="end", op="lac")
    position = lines.index(ended) + 1
    lines[position:position] = [asked | {"id": 900}, ended | {"id": 900, "lac": 1}]


def never_sent(lines: list[Line]) -> None:
    one(lines, kind="end", op="lac")["lac"] = LAST + 1


def with_a_hole(lines: list[Line]) -> None:
    one(lines, kind="found", by="reader 1")["first"] = 1


def out_of_order(lines: list[Line]) -> None:
    one(lines, kind="end", op="add", entry=1)["outcome"] = "unknown"


def one_copy(lines: list[Line]) -> None:
    one(lines, kind="holds", bookie="b2")["ranges"] = [[0, 1], [3, LAST]]


def opened_again(lines: list[Line]) -> None:
    closed = one(lines, kind="metadata", version=1)
    lines.insert(-1, closed | {"version": 2, "state": 1, "t": closed["t"] + 1})


def started_without_its_disk(lines: list[Line]) -> None:
    one(lines, kind="end", op="boot")["lacks_disk"] = True


def stopped_badly(lines: list[Line]) -> None:
    one(lines, kind="end", op="stop").update(outcome="refused", status=1)


def stays_down(lines: list[Line]) -> None:
    lines[-1].update(down=["bookie 2"])


def stays_in_limbo(lines: list[Line]) -> None:
    lines[-1].update(well=False, limbo=4)


def died(lines: list[Line]) -> None:
    lines[-1]["deaths"] = [["bookie 1", "the front-end ended: exit status 1"]]


def defect(lines: list[Line]) -> None:
    one(lines, kind="end", op="lac").update(outcome="refused", error="BugError: what")


@pytest.mark.parametrize(
    ("tamper", "name"),
    [
        (lost, "acknowledged entries can be read"),
        (another_value, "readers see what was written, and only what stays"),
        (closed_too_early, "acknowledged entries are in the ledger"),
        (two_ends, "one end for all"),
        (told_that_it_is_not_there, "acknowledged entries can be read"),
        (goes_back, "in order, without holes"),
        (never_sent, "in order, without holes"),
        (with_a_hole, "entries in order"),
        (out_of_order, "in order, without holes"),
        (one_copy, "enough copies"),
        (opened_again, "one end for all"),
        (started_without_its_disk, "a bookie without its disk refuses"),
        (stopped_badly, "an ordered stop is clean"),
        (stays_down, "all comes back"),
        (stays_in_limbo, "all comes back"),
        (died, "no process ends by itself"),
        (defect, "no defects"),
    ],
)
def test_it_notices(tmp_path: Path, tamper: Callable[[list[Line]], None], name: str) -> None:
    assert name in names(judged(tmp_path, tamper))


def test_a_stop_that_comes_upon_a_worker_that_was_just_killed_may_leave_its_disk_dirty(
    tmp_path: Path,
) -> None:
    def killed(lines: list[Line]) -> None:
        stopped_badly(lines)
        stop = one(lines, kind="begin", op="stop")
        what = {"id": 902, "op": "fault", "fault": "kill-worker", "bookie": stop["bookie"]}
        position = lines.index(stop)
        lines[position:position] = [
            {"t": stop["t"], "kind": "begin", **what},
            {"t": stop["t"], "kind": "end", "outcome": "ok", **what},
        ]

    assert not names(judged(tmp_path, killed))


def test_an_entry_that_is_acknowledged_after_the_end(tmp_path: Path) -> None:
    def late(lines: list[Line]) -> None:
        begin = one(lines, kind="begin", op="add", entry=LAST)
        end = one(lines, kind="end", op="add", entry=LAST)
        entry = {"entry": LAST + 1, "id": 901}
        position = lines.index(one(lines, kind="begin", op="boot"))
        at = {"t": lines[position]["t"]}
        lines[position:position] = [begin | entry | at, end | entry | at]

    verdict = judged(tmp_path, late)
    assert "acknowledged entries are in the ledger" in names(verdict)


def test_a_violation_says_when_and_which_faults_were_near(tmp_path: Path) -> None:
    (violation,) = judged(tmp_path, one_copy).violations
    assert "entries [2] of ledger 7 are on fewer than 2 bookies" in violation.words
    assert violation.at > 0
    (near,) = violation.near
    assert near.startswith("kill-worker bookie 1 (")


def test_a_history_that_was_cut_off_is_judged_as_far_as_it_goes(tmp_path: Path) -> None:
    write(tmp_path / "whole.jsonl")
    data = (tmp_path / "whole.jsonl").read_bytes()
    path = tmp_path / "cut.jsonl"
    path.write_bytes(data[: len(data) // 2])
    verdict = check_history(in_order(path))
    assert not verdict.complete
    assert verdict.violations == []


@pytest.mark.parametrize(
    "text", ["nothing\n", "[]\n", '{"t":1}\n', '{"t":1,"kind":"end","id":4,"op":"add"}\n']
)
def test_what_is_no_history_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(text)
    with pytest.raises(CallerError):
        check_history(in_order(path))
    with pytest.raises(CallerError):
        check_history(in_order(tmp_path / "none"))


def test_lines_come_in_the_order_of_time(tmp_path: Path) -> None:
    write(tmp_path / "history.jsonl")

    def times() -> Iterator[float]:
        return (line["t"] for line in in_order(tmp_path / "history.jsonl"))

    assert list(times()) == sorted(times())


def test_no_two_entries_are_alike() -> None:
    found = {payload(1, ledger, entry) for ledger in range(30) for entry in range(30)}
    empty = b"" in found
    assert len(found) >= 900 - 30
    assert empty
    assert payload(1, 2, 3) == payload(1, 2, 3) != payload(2, 2, 3)
