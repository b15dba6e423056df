"""What a request may say of a job that is to be started: everything else is refused before there is a job."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkbox.api.admin.client import ask
from bkbox.api.admin.socket_path import JOBS_URL, SOCKET_NAME
from bkbox.errors import BadRequestError, DiskChangeError, JobRefusedError
from bkbox.jobs.arguments import ARGUMENTS, checked_arguments
from bkbox.jobs.job import JobKind
from tests.harness.fuzztime import fuzz
from tests.harness.processes import BookieProcess
from tests.harness.waiting import wait_for

UUID = "5f0c6f5e-3d0b-4c85-9b4d-0d1f5a6b7c8d"
GOOD = {
    JobKind.RECOVERY: {"ledger": "7"},
    JobKind.DRAIN: {"disk": "/data/a"},
    JobKind.DECOMMISSION: {"bookie": "10.0.0.5:3181"},
}


def find(name: str) -> str:
    if name not in (UUID, "/data/a"):
        raise DiskChangeError(f"{name} is no disk of this bookie")
    return UUID


@pytest.mark.parametrize("kind", list(ARGUMENTS))
def test_what_a_kind_needs_is_said(kind: JobKind) -> None:
    good = GOOD.get(kind, {})
    assert checked_arguments(kind, good, find).keys() == good.keys()
    for name in good:
        with pytest.raises(BadRequestError, match=f"{name} is missing"):
            checked_arguments(kind, {}, find)
    with pytest.raises(BadRequestError, match="unknown argument 'disc'"):
        checked_arguments(kind, {**good, "disc": "x"}, find)


def test_every_mistake_is_said_at_once() -> None:
    wrong = {"garbage_ratio": "nan", "disk": "/data/b", "dry_run": "true"}
    with pytest.raises(BadRequestError) as caught:
        checked_arguments(JobKind.COMPACTION, wrong, find)
    text = str(caught.value)
    assert "garbage_ratio is 'nan': has to be a number from 0.01 to 1" in text
    assert "/data/b is no disk of this bookie" in text
    assert "unknown argument 'dry_run'; a compaction job takes disk, garbage_ratio" in text


def test_a_flag_that_is_false_is_not_taken_for_true() -> None:
    told = {"empty_trash": "false", "dry_run": "true"}
    assert checked_arguments(JobKind.GC, told, find) == {"dry_run": "true"}
    with pytest.raises(BadRequestError, match="has to be 'true' or 'false'"):
        checked_arguments(JobKind.GC, {"empty_trash": "0"}, find)


def test_one_thing_has_one_name() -> None:
    """So that the same job is not begun twice."""
    assert checked_arguments(JobKind.RECOVERY, {"ledger": "007"}, find) == {"ledger": "7"}
    assert checked_arguments(JobKind.SCRUB, {"disk": "/data/a"}, find) == {"disk": UUID}


NAMES = sorted({name for known in ARGUMENTS.values() for name in known})
VALUES = st.one_of(
    st.text(max_size=30),
    st.sampled_from(["true", "false", "0", "-1", "1e400", "nan", "٣", "0.5", str(2**63), UUID, ""]),
)


TOLD = st.dictionaries(st.one_of(st.sampled_from(NAMES), st.text(max_size=10)), VALUES, max_size=4)


def test_any_arguments() -> None:
    @given(st.sampled_from(list(ARGUMENTS)), TOLD)
    def take_or_refuse(kind: JobKind, told: dict[str, str]) -> None:
        try:
            found = checked_arguments(kind, told, find)
        except BadRequestError:
            return
        assert found.keys() <= told.keys() & ARGUMENTS[kind].keys()
        assert checked_arguments(kind, found, find) == found

    fuzz(take_or_refuse, 300)


# ---- on a bookie ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bookie(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BookieProcess]:
    root: Path = tmp_path_factory.mktemp("jobs")
    made = BookieProcess(root, f"sqlite:{root}/metadata.db").init(disks=2).start()
    try:
        yield made
    finally:
        made.ensure_gone()


def jobs_of(bookie: BookieProcess) -> object:
    return ask(bookie.disks[0] / SOCKET_NAME, "GET", JOBS_URL)


def start(bookie: BookieProcess, body: dict[str, object]) -> dict[str, object]:
    found = ask(bookie.disks[0] / SOCKET_NAME, "POST", JOBS_URL, body)
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"kind": "recovery"}, "ledger is missing"),
        ({"kind": "recovery", "arguments": {"ledger": "x"}}, "ledger is 'x'"),
        ({"kind": "recovery", "arguments": {"ledger": 7}}, "body.arguments.ledger"),
        ({"kind": "drain", "arguments": {}}, "disk is missing"),
        ({"kind": "scrub", "arguments": {"disk": "/nowhere"}}, "is no disk of this bookie"),
        ({"kind": "decommission"}, "bookie is missing"),
        ({"kind": "compaction", "arguments": {"garbage_ratio": "all"}}, "garbage_ratio is 'all'"),
        ({"kind": "gc", "arguments": {"compress": "true"}}, "unknown argument 'compress'"),
        ({"kind": "lunch"}, "body.kind"),
    ],
)
def test_a_request_with_mistakes_starts_nothing(
    bookie: BookieProcess, body: dict[str, object], said: str
) -> None:
    before = bookie.status()["jobs"]
    with pytest.raises(BadRequestError, match="body") as caught:
        start(bookie, body)
    assert said in str(caught.value)
    assert bookie.status()["jobs"]["failed"] == before["failed"] == 0


def test_any_request_is_done_or_refused(bookie: BookieProcess) -> None:
    """Not what waits for ever: a recovery or a drain."""
    short = [kind.value for kind in (JobKind.GC, JobKind.SCRUB, JobKind.COMPACTION, JobKind.LIMBO)]

    @given(st.one_of(st.sampled_from(short), st.text(max_size=5)), TOLD)
    def ask_for(kind: str, told: dict[str, str]) -> None:
        try:
            start(bookie, {"kind": kind, "arguments": told})
        except (BadRequestError, JobRefusedError):
            return

    fuzz(ask_for, 30)
    assert "a fault of bkbox" not in json.dumps(jobs_of(bookie))


@pytest.mark.parametrize("kind", ["limbo", "rebuild"])
def test_what_the_bookie_starts_by_itself_is_refused(bookie: BookieProcess, kind: str) -> None:
    with pytest.raises(JobRefusedError, match="by itself"):
        start(bookie, {"kind": kind})


def test_a_disk_is_named_by_path_or_uuid(bookie: BookieProcess) -> None:
    job = start(bookie, {"kind": "scrub", "arguments": {"disk": str(bookie.disks[1])}})
    assert json.dumps(job["arguments"]).count("-") == 4, "a uuid"

    def ended() -> bool:
        found = ask(bookie.disks[0] / SOCKET_NAME, "GET", f"{JOBS_URL}/{job['id']}")
        return isinstance(found, dict) and found["state"] == "done"

    wait_for(ended, "the scrub")
