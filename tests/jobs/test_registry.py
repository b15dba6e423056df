"""The registry of jobs and its file: ids, what may be done, what is remembered, what a lost process leaves."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from bkbox.config.schema import Config
from bkbox.errors import EncodingError, JobRefusedError, NoSuchJobError
from bkbox.jobs.job import Job, JobAction, JobKind, JobState, from_json, to_json
from bkbox.jobs.registry import (
    AUTOMATIC_ENDED_MAX,
    ENDED_MAX,
    Registry,
    registry_from_json,
)
from bkbox.storage.files import RealFiles
from bkbox.supervisor import job_schedule
from bkbox.supervisor.job_file import JobFile
from bkbox.supervisor.job_schedule import Periodic

RUNNING = {
    "state": "running",
    "step": "at work",
    "percent": 40.0,
    "done": {"ledgers": 2, "entries": 10, "bytes": 1000},
    "expected": {"ledgers": 5, "entries": None, "bytes": None},
    "rate": {"ledgers": 0.5, "entries": 2.0, "bytes": 200.0},
    "eta_s": 6.0,
    "counts": {"entries_missing": 3},
    "blocked": 1,
    "blockers": [{"ledger": 7, "reason": "no peer has it", "what_to_do": "bring one back"}],
}


def run(registry: Registry, job: Job, state: str = "done", **values: object) -> Job:
    registry.report({"id": job.id, "state": "running"}, 50)
    found = registry.report({"id": job.id, "state": state, **values}, 60)
    assert found is not None
    return found


def test_a_job_is_its_json() -> None:
    registry = Registry()
    job = registry.add(JobKind.DRAIN, {"disk": "a"}, 7)
    registry.report({"id": job.id, **RUNNING}, 8)
    found = registry.get(job.id)
    assert found.started_ms == 8
    assert found.blockers[0].ledger == 7
    assert from_json(json.loads(json.dumps(to_json(found)))) == found


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("state", "asleep"),
        ("kind", 3),
        ("arguments", {"disk": 1}),
        ("id", "1"),
        ("blockers", [{"ledger": 1}]),
        ("counts", {"a": "b"}),
        ("percent", "10"),
    ],
)
def test_a_document_that_is_no_job_is_refused_with_the_place(field: str, value: object) -> None:
    document = to_json(Job(1, JobKind.GC, {}, 5)) | {field: value}
    with pytest.raises(EncodingError, match=rf"job\.{field}"):
        from_json(document)


def test_what_an_older_version_did_not_write_has_its_default() -> None:
    document = {"id": 3, "kind": "drain", "arguments": {"disk": "a"}, "created_ms": 9, "new": 1}
    assert from_json(document) == Job(3, JobKind.DRAIN, {"disk": "a"}, 9)
    with pytest.raises(EncodingError, match="kind is missing"):
        from_json({"id": 3, "arguments": {}, "created_ms": 9})


def test_ids_ascend_and_are_never_given_again() -> None:
    registry = Registry()
    ids = [registry.add(JobKind.DRAIN, {"disk": str(n)}, 0).id for n in range(3)]
    assert ids == [1, 2, 3]
    again = registry_from_json(json.loads(json.dumps(registry.to_json())))
    assert again.add(JobKind.GC, {}, 0).id == 4
    assert Registry([], 9).add(JobKind.GC, {}, 0).id == 9


def test_the_same_job_runs_once_at_a_time() -> None:
    registry = Registry()
    first = registry.add(JobKind.DRAIN, {"disk": "a"}, 0)
    registry.add(JobKind.DRAIN, {"disk": "b"}, 0)
    with pytest.raises(JobRefusedError, match=f"job {first.id} does already"):
        registry.add(JobKind.DRAIN, {"disk": "a"}, 0)
    run(registry, first)
    registry.add(JobKind.DRAIN, {"disk": "a"}, 0)


def test_what_is_asked_of_a_job() -> None:
    registry = Registry()
    job = registry.add(JobKind.DRAIN, {}, 0)
    assert registry.control(job.id, JobAction.PAUSE).asked == "pause"
    assert registry.control(job.id, JobAction.RESUME).asked == ""
    assert registry.control(job.id, JobAction.RATE, 5).bytes_per_second == 5
    assert registry.control(job.id, JobAction.CANCEL).asked == "cancel"
    for action in (JobAction.PAUSE, JobAction.RESUME):
        with pytest.raises(JobRefusedError, match="being cancelled"):
            registry.control(job.id, action)
    ended = run(registry, job, "cancelled")
    assert (ended.state, ended.asked, ended.ended_ms) == (JobState.CANCELLED, "", 60)
    with pytest.raises(JobRefusedError, match="ended already: it is cancelled"):
        registry.control(job.id, JobAction.CANCEL)
    with pytest.raises(NoSuchJobError, match="no job 99"):
        registry.control(99, JobAction.CANCEL)


def test_the_limbo_job_cannot_be_cancelled() -> None:
    registry = Registry()
    job = registry.add(JobKind.LIMBO, {}, 0)
    with pytest.raises(JobRefusedError, match=f"bkbox job pause {job.id}"):
        registry.control(job.id, JobAction.CANCEL)
    assert registry.get(job.id).asked == ""


def test_reports_of_jobs_that_have_ended_change_nothing() -> None:
    registry = Registry()
    job = registry.add(JobKind.DRAIN, {}, 0)
    run(registry, job)
    assert registry.report({"id": job.id, "state": "running"}, 70) is None
    assert registry.report({"id": 99, "state": "running"}, 70) is None
    assert registry.get(job.id).state is JobState.DONE


def test_a_job_that_has_ended_does_nothing_any_more() -> None:
    registry = Registry()
    job = registry.add(JobKind.SCRUB, {}, 1)
    said = {"id": job.id, "step": "reading segment 7", "idle_minutes": 3, "standing_by": True}
    registry.report({**said, "state": "running"}, 2)
    assert registry.get(job.id).step == "reading segment 7"
    registry.report({**said, "state": "done"}, 3)
    ended = registry.get(job.id)
    assert (ended.step, ended.idle_minutes, ended.standing_by) == ("", 0, False)


def test_the_history_is_bounded_and_automatic_jobs_do_not_push_out_the_others() -> None:
    registry = Registry()
    asked = run(registry, registry.add(JobKind.DRAIN, {"disk": "a"}, 0))
    for _ in range(ENDED_MAX):
        run(registry, registry.add(JobKind.GC, {}, 0, automatic=True))
    kept = registry.all()
    assert asked in kept
    assert len(kept) == 1 + AUTOMATIC_ENDED_MAX
    for number in range(ENDED_MAX + 5):
        run(registry, registry.add(JobKind.DRAIN, {"disk": str(number)}, 0))
    assert len(registry.all()) == ENDED_MAX
    assert asked not in registry.all()


def test_a_job_whose_process_ended_is_queued_again() -> None:
    registry = Registry()
    running = registry.add(JobKind.DRAIN, {}, 0)
    waiting = registry.add(JobKind.SCRUB, {}, 0)
    registry.report({"id": running.id, **RUNNING}, 5)
    registry.control(running.id, JobAction.PAUSE)
    registry.process_ended(9, 100.0)
    found = registry.get(running.id)
    assert (found.state, found.asked, found.started_ms) == (JobState.QUEUED, "pause", 5)
    assert registry.get(waiting.id).crashes == 0


def test_a_job_that_takes_its_process_down_again_and_again_is_given_up() -> None:
    registry = Registry()
    poison = registry.add(JobKind.DRAIN, {}, 0)
    limbo = registry.add(JobKind.LIMBO, {}, 0)
    for _ in range(3):
        for job in (poison, limbo):
            registry.report({"id": job.id, "state": "running"}, 5)
        registry.process_ended(9, 1.0)
    assert registry.get(poison.id).state is JobState.FAILED
    assert "3 times" in registry.get(poison.id).error
    assert registry.get(limbo.id).state is JobState.QUEUED


def test_a_process_that_lived_long_and_a_stopped_bookie_are_no_fault_of_the_job() -> None:
    registry = Registry()
    job = registry.add(JobKind.DRAIN, {}, 0)
    for lived_s in (1.0, 1.0, None, None, 500.0, 1.0):
        registry.report({"id": job.id, "state": "running"}, 5)
        registry.process_ended(9, lived_s)
    assert registry.get(job.id).state is JobState.QUEUED


def test_half_a_look_at_the_cluster_is_not_gone_on_with() -> None:
    registry = Registry()
    job = registry.add(JobKind.GC, {}, 0)
    registry.report({"id": job.id, "state": "running"}, 5)
    registry.process_ended(9, None)
    assert registry.get(job.id).state is JobState.FAILED
    assert "interrupted" in registry.get(job.id).error


# ---- what is due --------------------------------------------------------------------------------


def test_the_limbo_job_is_due_while_anything_is_in_limbo_and_none_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job_schedule, "PERIODIC", ())
    config = cast(Config, None)
    registry = Registry()

    def found(limbo: bool, now_ms: int) -> list[JobKind]:
        return job_schedule.due(config, registry, limbo=limbo, now_ms=now_ms)

    assert JobKind.LIMBO not in found(False, 0)
    assert JobKind.LIMBO in found(True, 0)
    job = registry.add(JobKind.LIMBO, {}, 0, automatic=True)
    assert JobKind.LIMBO not in found(True, 10_000_000)
    run(registry, job)
    assert JobKind.LIMBO not in found(True, 1_000)
    assert JobKind.LIMBO in found(True, 10_000)
    run(registry, registry.add(JobKind.LIMBO, {}, 0, automatic=True), "failed", error="x")
    assert JobKind.LIMBO not in found(True, 10_000), "one that failed is not tried again at once"
    assert JobKind.LIMBO in found(True, 40_000)


def test_a_periodic_job_is_due_so_long_after_the_last_one_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = (Periodic(JobKind.SCRUB, lambda _: 100.0), Periodic(JobKind.GC, lambda _: None))
    monkeypatch.setattr(job_schedule, "PERIODIC", rows)
    config = cast(Config, None)
    registry = Registry()

    def found(now_ms: int) -> list[JobKind]:
        return job_schedule.due(config, registry, limbo=False, now_ms=now_ms)

    assert found(0) == [JobKind.SCRUB]
    job = registry.add(JobKind.SCRUB, {}, 0, automatic=True)
    assert found(10_000_000) == []
    run(registry, job)
    assert found(60 + 99_000) == []
    assert found(60 + 100_000) == [JobKind.SCRUB]
    assert found(0) == [JobKind.SCRUB], "a clock that was put back must not stop it"


# ---- the file -----------------------------------------------------------------------------------


@pytest.fixture
def disks(tmp_path: Path) -> list[Path]:
    found = [tmp_path / "a", tmp_path / "b"]
    for disk in found:
        disk.mkdir()
    return found


def saved(disks: list[Path], *kinds: JobKind) -> Registry:
    file = JobFile(RealFiles())
    registry = file.load(disks)
    for kind in kinds:
        registry.add(kind, {}, 0)
    document = file.next_document(registry)
    for disk in disks:
        file.write(disk, document)
    return registry


def test_any_one_disk_has_the_history(disks: list[Path]) -> None:
    kept = saved(disks, JobKind.GC, JobKind.SCRUB)
    for disk in disks:
        assert JobFile(RealFiles()).load([disk]).all() == kept.all()
    assert JobFile(RealFiles()).load([disks[0].parent / "gone"]).all() == []


def test_the_newest_of_the_disks_counts(disks: list[Path]) -> None:
    saved(disks, JobKind.GC)
    newest = saved(disks[:1], JobKind.SCRUB)
    for order in (disks, disks[::-1]):
        assert JobFile(RealFiles()).load(order).all() == newest.all()
    latest = saved(disks)
    assert latest.next_id == 3


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}\n",
        b"not a document\nffffffff\n",
        b'{"format": 1}\n00000000\n',
    ],
)
def test_a_damaged_history_is_set_aside(disks: list[Path], content: bytes) -> None:
    kept = saved(disks, JobKind.GC)
    (disks[0] / "JOBS").write_bytes(content)
    assert JobFile(RealFiles()).load(disks).all() == kept.all()
    assert (disks[0] / "JOBS.aside").read_bytes() == content
    assert not (disks[0] / "JOBS").exists()


def test_a_history_of_a_newer_version_or_with_a_strange_job_is_set_aside(disks: list[Path]) -> None:
    from bkbox.storage.checksummed_document import write_document

    write_document(RealFiles(), disks[0] / "JOBS", {"format": 2, "sequence": 1})
    write_document(
        RealFiles(), disks[1] / "JOBS", {"sequence": 1, "next_id": 2, "jobs": [{"id": 1}]}
    )
    assert JobFile(RealFiles()).load(disks).all() == []
    assert all((disk / "JOBS.aside").exists() for disk in disks)


def test_a_scrub_that_begins_by_itself_takes_a_part_of_its_interval() -> None:
    config = cast(Config, SimpleNamespace(scrub_interval_s=700_000.0))
    assert job_schedule.speed_limit(JobKind.SCRUB, config, 10**12) == 10**7
    assert job_schedule.speed_limit(JobKind.SCRUB, config, 0) == 4 << 20, (
        "and is not slower than this"
    )
    assert job_schedule.speed_limit(JobKind.GC, config, 10**12) == 0


def test_a_job_begins_with_its_limit() -> None:
    registry = Registry()
    job = registry.add(JobKind.SCRUB, {}, 5, automatic=True, bytes_per_second=77)
    assert registry.get(job.id).bytes_per_second == 77
