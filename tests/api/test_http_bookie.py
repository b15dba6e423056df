"""The admin API of a real bookie: every window shows the same, health, events, jobs, limbo, its OpenAPI document."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from bkbox_tui.sources import Bookie

from bkbox.api.admin import client, limbo
from bkbox.api.admin.remote import Remote
from bkbox.api.admin.socket_path import EVENTS_URL, STATUS_URL
from bkbox.api.admin.status import to_json
from bkbox.errors import AccessDeniedError, JobRefusedError
from bkbox.jobs.job import JobAction, JobKind, JobState
from bkbox.storage.disk.dirty_marker import record_failure
from bkbox.storage.files import RealFiles
from bkbox.wire.metadata.ledger import LedgerState
from tests.harness.cluster import create_ledgers, ledger_of, pretend_another_boot
from tests.harness.processes import BookieProcess, bkbox, free_port, frontends_of_the_run
from tests.harness.waiting import wait_for

TOKEN, READ_TOKEN = "t" * 32, "r" * 32
LIMBO = 250


class Served:
    """A bookie with an admin API over TCP, and ledgers in limbo that nobody can repair."""

    def __init__(self, root: Path) -> None:
        uri = f"sqlite:{root}/cluster.db"
        port = free_port()
        for name, token in (("token", TOKEN), ("read-token", READ_TOKEN)):
            path = root / name
            path.write_text(f"{token}\n")
            path.chmod(0o600)
        self.bookie = BookieProcess(root, uri).init(
            disks=2,
            ack_after="write",
            http_listen=f"127.0.0.1:{port}",
            http_token_file=root / "token",
            http_read_token_file=root / "read-token",
            metrics_java_names="true",
        )
        self.admin = Remote("127.0.0.1", port, TOKEN)
        self.reader = Remote("127.0.0.1", port, READ_TOKEN)
        self.bookie.start()
        ours = self.bookie.bookie_id
        create_ledgers(
            uri,
            (
                ledger_of(number, [ours], state=LedgerState.CLOSED, last_entry=9)
                for number in range(LIMBO)
            ),
        )
        self.bookie.kill()
        pretend_another_boot(self.bookie.disks)
        for disk in self.bookie.disks:
            record_failure(
                RealFiles(), disk, "a sync failed"
            )  # so it is not only of the last seconds
        self.bookie.start()

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        with closing(http.client.HTTPConnection("127.0.0.1", self.admin.port, timeout=30)) as asked:
            asked.request("GET", path, headers={"Authorization": f"Bearer {READ_TOKEN}", **headers})
            response = asked.getresponse()
            return response.status, response.read().decode()

    def is_whole(self) -> bool:
        return all(disk.state == "in service" for disk in client.fetch_status(self.reader).disks)

    def health(self) -> tuple[int, dict[str, Any]]:
        status, text = self.get("/healthz?verbose")
        return status, {check["name"]: check for check in json.loads(text)["checks"]}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("served")
    made = None
    try:
        made = Served(root)
        yield made
    finally:
        if made is not None:
            made.bookie.ensure_gone()


# What goes on while two windows are opened one after the other.
MOVING = (
    "taken_ms",
    "rates",
    "jobs",
    "scheduled_jobs",
    "limbo",
    "processes",
    "warnings",
    "clients",
)
MOVING_OF_DISKS = ("rates", "device", "worker", "stages", "free_bytes", "space", "counts")


def still(document: dict[str, Any]) -> dict[str, Any]:
    """What does not change from one look to the next."""
    found = {name: value for name, value in document.items() if name not in MOVING}
    found["disks"] = [
        {name: value for name, value in disk.items() if name not in MOVING_OF_DISKS}
        for disk in document["disks"]
    ]
    for name in ("cookies", "autorecovery"):
        found[name] = {key: value for key, value in found[name].items() if key != "checked_ms"}
    return found


def test_every_window_shows_the_same_document(served: Served) -> None:
    over_http = json.loads(served.get(STATUS_URL)[1])
    over_cli = json.loads(
        bkbox("status", "--config", str(served.bookie.config), "-o", "json").stdout
    )
    snapshot = asyncio.run(Bookie(served.reader, None, lambda: 0).read())
    assert snapshot.status is not None
    from_tui = json.loads(json.dumps(to_json(snapshot.status)))
    assert over_http.keys() == over_cli.keys() == from_tui.keys()
    assert still(over_http) == still(over_cli) == still(from_tui)
    assert over_http["state"] == "running"
    assert over_http["disks"][0]["worker"]["memory_bytes"] > 0
    assert {process["role"] for process in over_http["processes"]} == {
        *("supervisor", "frontend", "worker", "repair")
    }


def test_every_window_says_what_a_process_takes(served: Served) -> None:
    """Memory grows with the first job, but not as much as another unit would make of it; processor time only grows."""
    text = bkbox("status", "--config", str(served.bookie.config)).stdout
    table = {
        (role, name): figures
        for line in text.split("processes:\n")[1].split("\n\n")[0].splitlines()[1:]
        for role, name, *figures in [re.split("  +", line)]
    }
    snapshot = asyncio.run(Bookie(served.reader, None, lambda: 0).read())
    assert snapshot.status is not None
    values = metric_values(served.get("/metrics")[1])
    document = json.loads(served.get(STATUS_URL)[1])
    assert len(document["processes"]) - 4 == frontends_of_the_run().get("frontends", 1)
    shown = {(each.role, each.name): each for each in snapshot.status.processes}
    workers = {each.worker for each in snapshot.status.disks}
    assert workers == {each for each in shown.values() if each.role == "worker"}
    for process in document["processes"]:
        key = process["role"], process["name"]
        label = f'name="{process["name"]}",role="{process["role"]}"'
        pid, running, restarts, _percent, memory = table[key]
        assert (pid, running, restarts) == (str(process["pid"]), "yes", str(process["restarts"]))
        assert (shown[key].pid, shown[key].restarts) == (process["pid"], process["restarts"])
        assert float(values[f"bkbox_process_restarts_total{{{label}}}"]) == process["restarts"]
        resident = [
            float(memory.removesuffix(" MiB")) * (1 << 20),
            float(shown[key].memory_bytes or 0),
            float(values[f"bkbox_process_resident_memory_bytes{{{label}}}"]),
            process["memory_bytes"],
        ]
        assert min(resident) > max(resident) / 8
        computed = [
            shown[key].cpu_s or -1.0,
            float(values[f"bkbox_process_cpu_seconds_total{{{label}}}"]),
            process["cpu_s"],
        ]
        assert computed == sorted(computed)


def metric_values(text: str) -> dict[str, str]:
    return dict(
        line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#")
    )


def test_metrics_are_the_documents_values(served: Served) -> None:
    status, text = served.get("/metrics")
    assert status == 200
    document = json.loads(served.get(STATUS_URL)[1])
    values = metric_values(text)
    assert float(values["bkbox_writable"]) == document["writable"]
    for disk in document["disks"]:
        label = f'disk="{disk["path"]}"'
        assert float(values[f"bkbox_limbo_ledgers{{{label}}}"]) == disk["limbo_ledgers"]
        assert float(values[f"bkbox_ledgers{{{label}}}"]) == disk["ledgers"]
        assert float(values[f"bkbox_disk_size_bytes{{{label}}}"]) == disk["total_bytes"]
        assert float(values[f"bkbox_adds_total{{{label}}}"]) == disk["counts"]["adds"]
    assert sum(disk["limbo_ledgers"] for disk in document["disks"]) == LIMBO
    assert values["bookie_SERVER_STATUS"] in ("1.0", "0.0")


def test_the_document_has_what_an_operator_asks_for(served: Served) -> None:
    found = client.fetch_status(served.reader)
    assert found.boot.phase == "up"
    assert any("host crash" in reason for reason in found.boot.reasons)
    assert found.metadata.registered
    assert found.cookies.ok
    places = {field.where for field in found.cookies.fields}
    assert places == {"metadata", *map(str, served.bookie.disks)}
    assert {field.field for field in found.cookies.fields} >= {"bookieHost", "instanceId"}
    assert found.autorecovery.enabled is True
    assert found.autorecovery.writable_bookies == 1
    assert found.limbo.ledgers == LIMBO
    assert {each.kind for each in found.scheduled_jobs} >= {JobKind.GC, JobKind.SCRUB}
    assert found.http == f"127.0.0.1:{served.admin.port}"
    for disk in found.disks:
        assert disk.device is not None
        assert disk.space is not None
        assert disk.worker is not None
        assert disk.worker.cpu_s is not None
    for warning in found.warnings:
        assert warning.command.startswith("bkbox "), warning.text


def test_all_ledgers_in_limbo_page_by_page(served: Served) -> None:
    first = limbo.page(served.reader, limit=100)
    assert [each.ledger for each in first.ledgers] == list(range(100))
    assert first.more
    assert [each.ledger for each in limbo.ledgers(served.reader)] == list(range(LIMBO))
    assert not limbo.page(served.reader, after=LIMBO - 2).more


def test_jobs_over_http(served: Served) -> None:
    with pytest.raises(AccessDeniedError, match="may only read"):
        client.start_job(served.reader, JobKind.SCRUB, {})
    job = client.start_job(served.admin, JobKind.SCRUB, {})
    with suppress(JobRefusedError):  # it may be done already
        assert client.control_job(served.admin, job.id, JobAction.PAUSE).asked == "pause"
        client.control_job(served.admin, job.id, JobAction.RATE, bytes_per_second=1 << 20)
        client.control_job(served.admin, job.id, JobAction.RESUME)
    wait_for(lambda: client.job(served.reader, job.id).state.ended, "the end of the scrub")
    assert client.job(served.reader, job.id).state is JobState.DONE
    assert job.id in [each.id for each in client.jobs(served.reader)]
    client.pace_jobs(served.admin, 5 << 20)
    assert client.fetch_status(served.reader).jobs.bytes_per_second == 5 << 20
    client.pace_jobs(served.admin, None)
    assert client.fetch_status(served.reader).jobs.bytes_per_second is None


def test_health_by_named_checks_one_of_which_writes(served: Served) -> None:
    assert served.get("/livez") == (200, "ok\n")
    assert served.get("/readyz") == (200, "ok\n")
    status, checks = served.health()
    assert status == 200
    assert checks["limbo"]["state"] == "warn"
    for disk in served.bookie.disks:
        assert checks[f"write and read {disk}"]["state"] == "ok"
        assert not (disk / "PROBE").exists()
    assert set(json.loads(served.get("/healthz")[1])) == {"state"}


def listen(served: Served, seen: list[dict[str, Any]], up: threading.Semaphore) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", served.admin.port, timeout=30)) as asked:
        asked.request("GET", EVENTS_URL, headers={"Authorization": f"Bearer {READ_TOKEN}"})
        response = asked.getresponse()
        up.release()
        while True:
            line = response.readline().decode()
            if line.startswith("data: "):
                seen.append(json.loads(line.removeprefix("data: ")))
                if "again" in seen[-1]["text"] and "worker" in seen[-1]["text"]:
                    return


def test_two_hundred_listeners_hear_what_changes(served: Served) -> None:
    up = threading.Semaphore(0)
    seen: list[list[dict[str, Any]]] = [[] for _ in range(200)]
    threads = [
        threading.Thread(target=listen, args=(served, each, up), daemon=True) for each in seen
    ]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert up.acquire(timeout=30)

    def all_hear() -> bool:
        """The first look has no one before it: until then nothing is news."""
        with suppress(JobRefusedError):
            client.start_job(served.admin, JobKind.SCRUB, {})
        time.sleep(1.0)
        return all(seen)

    wait_for(all_hear, "every listener to hear of a job", timeout=90)
    served.bookie.worker(1).kill()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a listener did not hear of the restart"
    numbers = [[event["number"] for event in each] for each in seen]
    assert all(each == sorted(set(each)) for each in numbers)
    wait_for(served.is_whole, "the disk to be back")


def test_a_disk_that_takes_nothing_fails_its_check(served: Served) -> None:
    """Last: the probes are made anew only after a while, so a new bookie is asked."""
    assert served.bookie.stop() == 0, served.bookie.stderr
    blocked = served.bookie.disks[1] / "PROBE"
    blocked.mkdir()  # so that no file can be made there, also by root
    served.bookie.start()
    status, checks = served.health()
    assert status == 503
    assert checks[f"write and read {served.bookie.disks[1]}"]["state"] == "fail"
    assert checks[f"write and read {served.bookie.disks[0]}"]["state"] == "ok"
    assert served.get("/readyz")[0] == 200, "it serves all the same"
