"""One finding per cause: the table, and what the doctor says of real bookies on which one thing is wrong."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bkbox.checks import registry
from bkbox.checks.causes import ALIKE, CAUSES, fold
from bkbox.checks.registry import Finding, worst
from tests.harness.fixtures import MakeBookie
from tests.harness.processes import BookieProcess, bkbox
from tests.harness.waiting import wait_for
from tests.repair.copies import Cluster, write_ledgers

OF_THE_HOST = {"file system", "memory", "clock", "kernel", "limits"}


def doctor(bookie: BookieProcess) -> list[dict[str, Any]]:
    """What is wrong, but for this host and its only device."""
    words = ("doctor", "--config", str(bookie.config), "--wait", "2", "--quiet", "-o", "json")
    found = json.loads(bkbox(*words, check=False).stdout)["findings"]
    return [
        each
        for each in found
        if each["check"] not in OF_THE_HOST and "fail together" not in each["why"]
    ]


def causes(bookie: BookieProcess) -> list[str]:
    return [each["check"] for each in doctor(bookie)]


def processes(bookie: BookieProcess, role: str) -> list[int]:
    return [each["pid"] for each in bookie.status()["processes"] if each["role"] == role]


@pytest.mark.parametrize("row", CAUSES, ids=lambda row: f"{row.effect.id} of {row.cause.id}")
def test_an_effect_is_listed_under_its_cause_and_stands_alone_without_it(row: Any) -> None:
    cause = row.cause.warn(
        f"{row.cause_says}: a" if row.named else row.cause_says or "a cause", "a"
    )
    effect = row.effect.warn(row.says[0] or "an effect", "a")
    (found,) = fold([effect, cause])
    assert (found.check, [each.check for each in found.effects]) == (row.cause.id, [row.effect.id])
    assert fold([effect]) == [effect]
    assert fold([effect, row.cause.ok("in order", "a")])[0] == effect
    if row.same_about:
        assert len(fold([effect, row.cause.warn(row.cause_says or "a cause", "b")])) == 2


def test_nothing_is_lost_and_the_worst_verdict_stays() -> None:
    found = [check.warn(f"{check.id} {row.says[0]} {row.cause_says}", "a")
             for row in CAUSES for check in (row.effect, row.cause)]  # fmt: skip
    found += [
        check.fail("it fails", "a")
        for check in registry.CHECKS.values()
        if check.severity == "fail"
    ]
    folded = fold(found)
    shown = sum(1 + len(each.effects) for each in folded)
    assert shown == len(found)
    assert worst(folded) == worst(found)
    mild, grave = registry.DISK.warn("gone", "a"), registry.NO_DISK.fail("no disk is in service")
    assert [each.verdict for each in fold([mild, grave])] == ["fail"]


def test_no_check_is_its_own_cause() -> None:
    above: dict[str, set[str]] = {}
    for row in CAUSES:
        if row.effect != row.cause:  # in other words: see below
            above.setdefault(row.effect.id, set()).add(row.cause.id)
    assert not ALIKE & above.keys() - {registry.SPACE.id}

    def reached(check: str, path: tuple[str, ...]) -> None:
        assert check not in path, path
        for each in above.get(check, ()):
            reached(each, (*path, check))

    for check in above:
        reached(check, ())


def test_findings_that_are_causes_of_each_other_are_folded_once() -> None:
    both = f"{registry.DIFFER}a): {registry.NO_START}"
    found = [registry.COOKIES.warn(both, "a"), registry.COOKIES.fail(both, "b")]
    (one,) = fold(found)
    assert (one.verdict, len(one.effects)) == ("fail", 1)


def test_what_the_cookies_name_is_listed_under_them() -> None:
    cookies = registry.COOKIES.fail(f"ledgerDirs of /d/1, /d/2 is (none): {registry.NO_START}")
    told = registry.COOKIES.warn(f"{registry.DIFFER}/d/1: ledgerDirs): the next start would refuse")
    disks = [registry.DISK.fail("it is empty", f"/d/{name}") for name in ("1", "2", "22")]
    locked = registry.LOCK.fail("another process holds it", "/d/1")
    folded = fold([told, *disks, locked, cookies])
    assert [(each.check, each.about) for each in folded] == [("disk", "/d/22"), ("cookies", "")]
    assert [each.about for each in folded[1].effects] == ["", "/d/1", "/d/2", "/d/1"]


def test_two_checks_that_met_the_same_thing_say_so_once() -> None:
    why = "cannot read /etc/bkbox: permission denied"
    (found,) = fold([registry.CONFIGURATION.fail(why), registry.METADATA_STORE.fail(why)])
    assert (found.check, [each.check for each in found.effects]) == (
        "configuration",
        ["metadata store"],
    )


def test_two_causes_stay_two_findings() -> None:
    found: list[Finding] = [
        registry.DISK.fail("disk a is failed", "a"),
        registry.DISK.fail("disk b is failed", "b"),
        registry.METADATA_STORE.fail("it does not answer"),
        registry.WRITABLE.warn("it takes no writes: operator"),
    ]
    assert fold(found) == found


def test_full_disks(make_bookie: MakeBookie) -> None:
    bookie = make_bookie(disk_usage_max=0.01, disk_usage_resume=0.001).start()
    (found,) = doctor(bookie)
    assert found["check"] == "space"
    assert [each["check"] for each in found["effects"]] == ["room", "room", "writable", "space"]


def test_a_disk_that_is_lost_while_the_bookie_runs(make_bookie: MakeBookie) -> None:
    bookie = make_bookie().start()
    lost = bookie.disks[1]
    lost.rename(f"{lost}.gone")
    wait_for(lambda: causes(bookie) == ["disk"], "one finding")
    assert doctor(bookie)[0]["about"] == str(lost)


def test_a_front_end_that_is_stopped(make_bookie: MakeBookie) -> None:
    bookie = make_bookie(frontends=1).start()
    (pid,) = processes(bookie, "frontend")
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_for(
            lambda: any(each["stalled_s"] for each in bookie.status()["processes"]), "it to be seen"
        )
        assert causes(bookie) == ["progress"]
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_worker_that_was_killed(make_bookie: MakeBookie) -> None:
    bookie = make_bookie().start()
    os.kill(processes(bookie, "worker")[0], signal.SIGKILL)
    wait_for(lambda: causes(bookie) == ["processes"], "one finding, once it is back")


def test_the_metadata_store_goes_away(make_bookie: MakeBookie, tmp_path: Path) -> None:
    bookie = make_bookie().start()
    for path in tmp_path.glob("metadata.db*"):
        path.rename(f"{path}.gone")
    wait_for(lambda: not bookie.status()["metadata"]["registered"], "it to be seen", timeout=30)
    (found,) = doctor(bookie)
    assert found["check"] == "metadata store"
    assert "metadata" in [each["check"] for each in found["effects"]]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(tmp_path)
    settings = {"ack_after": "write", "repair_retry_initial_s": 0.2, "repair_retry_max_s": 0.5}
    found.start(2, unsafe="stays-active", **settings)
    yield found
    found.close()


def test_limbo_after_a_lost_host(cluster: Cluster) -> None:
    stuck = asyncio.run(write_ledgers(cluster.uri, 3, close=False))
    cluster.lose_power()
    first = cluster.bookies[0]
    wait_for(lambda: len(first.status()["limbo"]["blockers"]) == len(stuck), "all to be stuck")
    found = [each for each in doctor(first) if each["check"] not in ("power", "bookie")]
    assert [each["check"] for each in found] == ["limbo"]
    blocked = [each["about"] for each in found[0]["effects"] if each["check"] == "blocked"]
    assert sorted(blocked) == [f"ledger {number}" for number in stuck]
    texts = [each["text"] for each in first.status()["warnings"]]
    assert any("cannot go on without help" in text for text in texts), "more than being in limbo"
