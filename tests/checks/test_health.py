"""The judgement on a bookie, check by check."""

from __future__ import annotations

from dataclasses import replace

from bkbox.api.admin.status import (
    Boot,
    CookieField,
    Cookies,
    DiskStatus,
    Limbo,
    Metadata,
    Process,
    SpaceUsage,
    Status,
)
from bkbox.checks.health import Probe, health_of, not_ready

DISK = DiskStatus("/data/a", "6a1c", "clean", "", "in service", 1, 0, 10, 20)
WELL = Status(
    *("0.1.0", "b:1", "i", "b:1", "running", True, "sync", Boot("up")),
    disks=(DISK,),
    processes=(Process("frontend", "b:1", 2, 0, True), Process("repair", "b:1", 3, 0, True)),
    cookies=Cookies(True),
    metadata=Metadata("sqlite:/c.db", True),
)
PROBE = Probe("/data/a", "", 1.5, 5)


def states(status: Status, *probes: Probe) -> dict[str, str]:
    found = health_of(status, probes)
    worst = {check.state for check in found.checks}
    expected = "fail" if "fail" in worst else "warn" if "warn" in worst else "ok"
    assert found.state == expected
    return {check.name: check.state for check in found.checks if check.state != "ok"}


def test_one_that_is_well() -> None:
    assert states(WELL, PROBE) == {}
    assert not_ready(WELL) == ""


def test_each_thing_that_is_wrong_has_a_name() -> None:
    assert states(WELL, replace(PROBE, problem="no room")) == {"write and read /data/a": "fail"}
    failed = replace(WELL, disks=(replace(DISK, state="failed", reason="EIO"),))
    assert states(failed) == {"disk /data/a": "fail"}
    assert "no disk" in not_ready(failed)
    assert states(replace(WELL, limbo=Limbo(3))) == {"limbo": "warn"}
    assert states(replace(WELL, writable=False)) == {"writable": "warn"}
    assert states(replace(WELL, cookies=Cookies(False))) == {"cookies": "warn"}
    unmounted = Cookies(
        False, fields=(CookieField("/data/a", "ledgerDirs", "", "1 /data/a", False),)
    )
    assert states(replace(failed, cookies=unmounted)) == {"disk /data/a": "fail"}, "one cause"
    assert states(replace(WELL, cookies=unmounted)) == {"cookies": "warn"}
    assert states(replace(WELL, cookies=Cookies())) == {}, "not compared yet is no fault"
    full = replace(WELL, disks=(replace(DISK, read_only=("disk full",)),))
    assert states(full) == {"room /data/a": "warn"}
    bad = replace(WELL, disks=(replace(DISK, space=SpaceUsage(quarantined=2)),))
    assert states(bad) == {"segments": "warn"}


def test_a_cause_has_its_effects_under_it_and_the_reason_for_a_gate_once() -> None:
    hung = replace(
        WELL, writable=False, disks=(replace(DISK, disk="6a1c", state="out of service"),)
    )
    worker = Process("worker", "/data/a", 4, 0, True, disk="6a1c", stalled_s=2.0, stall="it sleeps")
    hung = replace(hung, processes=(*WELL.processes, worker))
    (told,) = (each for each in health_of(hung, ()).checks if each.state != "ok")
    assert (told.name, [each.check for each in told.effects]) == ("progress", ["writable"])
    assert not_ready(hung) == told.text
    front = Process("frontend", "b:1", 2, 0, True, stalled_s=2.0, stall="it sleeps")
    assert "; " in not_ready(replace(hung, processes=(front, worker))), "two causes"


def test_a_bookie_that_is_not_there_for_clients() -> None:
    alone = replace(WELL, metadata=Metadata("sqlite:/c.db", False, 40.0))
    assert states(alone) == {"metadata": "fail"}
    assert "not registered" in not_ready(alone)
    starting = replace(WELL, state="starting", boot=Boot("replay"))
    assert states(starting) == {"bookie": "fail"}
    assert "replay" in not_ready(starting)
    front = replace(WELL, processes=(Process("frontend", "b:1", 2, 1, False),))
    assert states(front) == {"frontend": "fail"}
    assert "front-end" in not_ready(front)


def test_one_of_several_front_ends_that_is_not_there() -> None:
    one = Process("frontend", "front-end 1", 2, 0, True)
    two = Process("frontend", "front-end 2", 3, 0, True)
    repair = WELL.processes[1:]
    assert states(replace(WELL, processes=(one, two, *repair))) == {}
    ended, stalled = replace(two, running=False), replace(two, stalled_s=5.0, stall="stopped")
    degraded = replace(WELL, processes=(one, ended, *repair))
    assert states(degraded) == {"frontend": "warn"}
    assert not_ready(degraded) == "", "the other one serves"
    assert states(replace(WELL, processes=(one, stalled, *repair))) == {"progress": "warn"}
    none = replace(WELL, processes=(replace(one, running=False), ended, *repair))
    assert states(none) == {"frontend": "fail"}
    assert "front-end 1" in not_ready(none)
    assert states(replace(WELL, processes=(replace(one, running=False), stalled, *repair)))[
        "progress"
    ] == ("fail")
