"""The status document: what is written is what is read, and what is wrong is named."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from bkbox.api.admin.schema import schema_of
from bkbox.api.admin.status import (
    SCHEMA_VERSION,
    Autorecovery,
    Boot,
    Clients,
    CookieField,
    Cookies,
    DiskStatus,
    Limbo,
    Metadata,
    Process,
    Replay,
    ScheduledJob,
    Status,
    StatusWarning,
    from_json,
    to_json,
)
from bkbox.errors import EncodingError
from bkbox.jobs.job import Blocker, JobKind, JobState

FULL = Status(
    version="0.1.0",
    bookie_id="127.0.0.1:3181",
    instance_id="3f0c2f9e-1111-4222-8333-444455556666",
    listen="127.0.0.1:3181",
    state="running",
    writable=False,
    ack_after="write",
    boot=Boot("repairing", ("boot id changed",)),
    read_only_reasons=("limbo",),
    disks=(
        DiskStatus(
            path="/data/a",
            disk="6a1c",
            crash_class="host crash",
            reason="boot id changed",
            state="in service",
            ledgers=7,
            limbo_ledgers=2,
            free_bytes=2**40,
            total_bytes=2**41,
            read_only=("limbo",),
            replay=Replay(records=5, entries=4, bytes=300, cut_bytes=17, damaged=1),
        ),
    ),
    processes=(Process("worker", "disk 0", 4711, 1, True),),
    limbo=Limbo(7, 5, 100, 10, 9, 900, 1.5, (Blocker(3, "no peer answers", "start b"),)),
    warnings=(StatusWarning("ack quorum of 1", "bkbox ledger show 3"), StatusWarning("late")),
    taken_ms=1_700_000_000_000,
    clients=Clients(3, 100, 0),
    cookies=Cookies(True, (CookieField("metadata", "bookieHost", "a", "a", True),), "", "", 5),
    metadata=Metadata("sqlite:/c.db", True, 0.0),
    autorecovery=Autorecovery(True, True, "127.0.0.1:3181", 0, 1, 0, "", 5),
    scheduled_jobs=(ScheduledJob(JobKind.GC, 900.0, 7, JobState.DONE, 1_700_000_000_000),),
)
SMALL = Status("0.1.0", "b:1", "i", "b:1", "starting", True, "sync", Boot("locks"))


@pytest.mark.parametrize("status", [FULL, SMALL])
def test_round_trip_through_json_text(status: Status) -> None:
    assert from_json(json.loads(json.dumps(to_json(status)))) == status


def test_the_keys_that_scripts_read() -> None:
    document = to_json(FULL)
    assert document["schema"] == SCHEMA_VERSION == 2
    assert document["kernel"] == "interpreted"
    assert document["disks"][0]["crash_class"] == "host crash"
    assert document["disks"][0]["replay"]["cut_bytes"] == 17
    assert document["limbo"]["blockers"][0]["what_to_do"] == "start b"


def test_unknown_keys_are_skipped() -> None:
    document = to_json(FULL) | {"colour": "blue"}
    document["limbo"] |= {"mood": "good"}
    assert from_json(document) == FULL


def change(*path: Any, to: object) -> dict[str, Any]:
    document: Any = json.loads(json.dumps(to_json(FULL)))
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = to
    assert isinstance(document, dict)
    return document


def test_what_an_older_version_did_not_write_has_its_default() -> None:
    document = to_json(SMALL)
    for name in ("taken_ms", "cookies", "rates", "scheduled_jobs", "clients", "read_only_reasons"):
        del document[name]
    assert from_json(document) == SMALL


def test_of_a_newer_version_is_shown_what_can_be_understood() -> None:
    document = change("schema", to=SCHEMA_VERSION + 1) | {"version": "9.0", "colour": "blue"}
    document["limbo"]["eta_s"] = "soon"
    document["disks"].append({"path": "/data/b", "kind": "of another shape"})
    found = from_json(document)
    assert found.bookie_id == FULL.bookie_id
    assert found.limbo.ledgers == FULL.limbo.ledgers
    assert found.limbo.eta_s is None
    assert found.disks == (), "a list of which a part is not understood"
    assert found.warnings[1:] == FULL.warnings
    assert "newer bkbox (version 9.0, status schema 3" in found.warnings[0].text


def test_a_document_of_an_older_schema_is_refused_with_the_version_that_wrote_it() -> None:
    """Its keys have other names: read as they are, its figures would all be missing."""
    with pytest.raises(
        EncodingError,
        match=r"older bkbox \(version '0\.1\.0', status schema 1; this one reads 2\): .*restart the bookie",
    ):
        from_json(change("schema", to=SCHEMA_VERSION - 1))


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ([], "expected an object, found a list"),
        (change("schema", to=0), "schema 0"),
        (change("schema", to="1"), "schema '1'"),
        (change("schema", to=3) | {"state": "asleep"}, "newer bkbox.*schema 3.*'asleep' is not"),
        (change("writable", to=1), "status.writable: 1 is not true or false"),
        (change("limbo", "ledgers", to=True), "status.limbo.ledgers: true is not a whole number"),
        (change("state", to="asleep"), "status.state: 'asleep' is not one of 'starting'"),
        (change("disks", 0, "path", to=None), r"status.disks\[0\].path: null is not text"),
        (change("disks", 0, "replay", to=3), r"status.disks\[0\].replay: expected an object"),
        (change("read_only_reasons", to="x"), "status.read_only_reasons: 'x' is not"),
        (change("limbo", "eta_s", to="soon"), "status.limbo.eta_s: 'soon' is not a number"),
        ({"schema": SCHEMA_VERSION}, "bookie_id.* is missing"),
    ],
)
def test_a_wrong_document_is_refused_with_its_place(document: object, says: str) -> None:
    with pytest.raises(EncodingError, match=says):
        from_json(document)


def test_the_schema_is_that_of_the_document() -> None:
    schema = schema_of(Status, "status")
    validator = jsonschema.Draft202012Validator(schema)
    validator.validate(json.loads(json.dumps(to_json(FULL))))
    validator.validate(json.loads(json.dumps(to_json(SMALL))))
    for wrong in (
        change("writable", to=1),
        change("state", to="asleep"),
        {"schema": SCHEMA_VERSION},
    ):
        assert not validator.is_valid(wrong)
