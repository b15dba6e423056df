"""Autorecovery as operators run it: inside of bookies, alone, by commands; and killed at any moment."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bkbox.base.ids import LedgerId
from tests.harness.processes import BKBOX, bkbox
from tests.harness.waiting import wait_for
from tests.repair.copies import Cluster, hands

_ASKED = os.environ.get("AUTORECOVERY_KILLS", "2")
KILLS = 100 if _ASKED == "all" else int(_ASKED)


@contextmanager
def alone(uri: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """``bkbox autorecovery run``, ready."""
    command = [*BKBOX, "autorecovery", "run", "--metadata", uri, "--lost-bookie-delay", "0s"]
    process = subprocess.Popen(
        [*command, "--open-ledger-grace", "0s", "--full-check-every", "0s", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("ready "), process.communicate()
        yield process
    finally:
        process.kill()
        process.communicate()


def left(uri: str) -> int:
    return int(status(uri)["under_replicated"])


def status(uri: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(
        bkbox("autorecovery", "status", "--metadata", uri, "-o", "json").stdout
    )
    return found


async def whole_of(uri: str, ledgers: dict[LedgerId, int], lost: str) -> bool:
    async with hands(uri) as our:
        for ledger in ledgers:
            if lost in (await our.metadata(ledger)).bookies():
                return False
        for ledger, entries in ledgers.items():
            await our.assert_whole(ledger, entries)
        return True


def test_bookies_bring_back_what_one_of_them_lost(cluster: Cluster) -> None:
    """As jobs of theirs, which operators see."""
    first = cluster.start(
        3,
        autorecovery_enabled="true",
        autorecovery_lost_bookie_delay_s=0,
        autorecovery_open_ledger_grace_s=0,
    )

    async def write() -> dict[LedgerId, int]:
        async with hands(cluster.uri) as our:
            ledgers = {await our.closed(80): 80, await our.closed(30, 3, 2, 2): 30}
            return ledgers | {await our.in_recovery(20): 20}

    ledgers = asyncio.run(write())
    (newcomer,) = cluster.start(1, autorecovery_enabled="true")
    first[0].kill()
    wait_for(
        lambda: asyncio.run(whole_of(cluster.uri, ledgers, first[0].bookie_id)),
        "all copies to be back",
        timeout=120,
        pause=0.5,
    )
    wait_for(lambda: left(cluster.uri) == 0, "no mark to be left", pause=0.3)
    listed = bkbox("job", "list", "--config", str(newcomer.config), "-o", "json")
    kinds = {each["kind"]: each["state"] for each in json.loads(listed.stdout)}
    assert kinds == {"audit": "running", "replication": "running"}
    assert status(cluster.uri)["auditor"] in {each.bookie_id for each in cluster.bookies[1:]}


def test_alone_and_ended_in_order(cluster: Cluster) -> None:
    lost = cluster.start(3)[0]

    async def write() -> dict[LedgerId, int]:
        async with hands(cluster.uri) as our:
            return {await our.closed(60): 60 for _ in range(3)}

    ledgers = asyncio.run(write())
    cluster.start(1)
    lost.kill()
    with alone(cluster.uri, "--name", "tool:1") as process:
        wait_for(
            lambda: asyncio.run(whole_of(cluster.uri, ledgers, lost.bookie_id)),
            "all copies to be back",
            timeout=60,
            pause=0.3,
        )
        assert status(cluster.uri)["auditor"] == "tool:1"
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=20)
        assert process.returncode == 0, log
        assert "is replaced by" in log
    assert status(cluster.uri)["auditor"] is None


def test_commands(cluster: Cluster) -> None:
    lost = cluster.start(3)[0]

    async def write() -> list[LedgerId]:
        async with hands(cluster.uri) as our:
            ledger, deleted = await our.closed(5), await our.closed(5)
            await our.mark(lost, ledger, deleted)
            await our.store.delete_ledger(deleted)
            await our.store.under_replication.mark(LedgerId(10**6), [], 5)
            return [ledger, deleted]

    ledger, deleted = asyncio.run(write())
    lost.kill()
    there = ("--metadata", cluster.uri)
    shown = json.loads(bkbox("autorecovery", "list", *there, "-o", "json").stdout)
    by_id = {each["ledger"]: each for each in shown}
    assert list(by_id) == [ledger, deleted, 10**6]
    assert by_id[ledger]["missing"] == [lost.bookie_id]
    assert by_id[ledger]["live_copies"] == 2
    assert by_id[ledger]["why"] == f"not registered: {lost.bookie_id}"
    assert by_id[deleted]["why"] == "the ledger was deleted"
    only = bkbox("autorecovery", "list", *there, "--missing", lost.bookie_id, "-o", "json")
    assert [each["ledger"] for each in json.loads(only.stdout)] == [ledger, deleted]
    table = bkbox("autorecovery", "list", *there).stdout
    assert f"not registered: {lost.bookie_id}" in table
    assert status(cluster.uri) == {
        "enabled": True,
        "auditor": None,
        "under_replicated": 3,
        "at_work": 0,
        "recovery_delay_s": None,
        "last_full_check_ms": None,
    }
    assert "nothing was changed" in bkbox("autorecovery", "disable", *there, "--dry-run").stderr
    assert status(cluster.uri)["enabled"]
    assert "is disabled" in bkbox("autorecovery", "disable", *there).stderr
    assert "disabled already" in bkbox("autorecovery", "disable", *there).stderr
    assert not status(cluster.uri)["enabled"]
    fields = bkbox("autorecovery", "status", *there).stdout.splitlines()
    assert fields[0].split() == ["enabled", "no"]
    bkbox("autorecovery", "enable", *there)
    assert status(cluster.uri)["enabled"]
    wrong = bkbox("autorecovery", "run", *there, "--rate", "fast", check=False)
    assert (wrong.returncode, "is not a rate" in wrong.stderr) == (2, True)


@pytest.mark.timeout(3_000 if KILLS > 20 else 300)
def test_killed_at_any_moment_it_goes_on_where_it_was(cluster: Cluster) -> None:
    """A worker is killed with SIGKILL, and the next one, and the next; the last one ends it."""
    cluster.start(4)

    async def scenario() -> None:
        async with hands(cluster.uri) as our:
            for seed in range(KILLS):
                rng = random.Random(seed)
                ledgers = {await our.closed(200, 3, 2, 2): 200 for _ in range(3)}
                ledgers |= {await our.closed(500): 500, await our.in_recovery(50): 50}
                for ledger in ledgers:
                    await our.misname(ledger, "127.0.0.1:1")
                with alone(cluster.uri, "--rate", "2MiB") as process:
                    await asyncio.sleep(rng.uniform(0.0, 2.5))
                    process.kill()
                    process.wait()
                await our.bookie_check(our.auditor())
                await our.work_off(our.worker())
                assert not await our.store.under_replication.locked()
                for ledger, entries in ledgers.items():
                    await our.assert_whole(ledger, entries)

    asyncio.run(scenario())


def test_a_check_by_command(cluster: Cluster) -> None:
    """Here and now, with what bookies lack marked; or by the auditor, when it is asked to."""
    first = cluster.start(3)

    async def write() -> tuple[list[LedgerId], LedgerId]:
        async with hands(cluster.uri) as our:
            short = [await our.closed(40) for _ in range(2)]
            whole = await our.closed(10)
            (newcomer,) = await asyncio.to_thread(cluster.start, 1)
            for ledger in short:
                await our.rename(ledger, first[0], newcomer.bookie_id)
            return short, whole

    short, whole = asyncio.run(write())
    newcomer = cluster.bookies[3].bookie_id

    def check(*arguments: str) -> tuple[int, dict[str, int]]:
        there = ("--metadata", cluster.uri, "--now", "-o", "json")
        done = bkbox("autorecovery", "check", *arguments, *there, check=False)
        return done.returncode, json.loads(done.stdout)

    assert check(str(whole)) == (
        0,
        {"ledgers": 1, "copies_short": 0, "marked": 0, "lists_missing": 0},
    )
    assert check("--bookie", first[1].bookie_id)[1]["copies_short"] == 0
    assert left(cluster.uri) == 0
    assert status(cluster.uri)["last_full_check_ms"] is None, "that was not a check of all"
    code, found = check("--bookie", newcomer)
    assert (code, found["copies_short"], found["marked"]) == (1, 80, 2)
    assert left(cluster.uri) == 2
    assert "there is no auditor" in bkbox("autorecovery", "check", "--metadata", cluster.uri).stderr
    with alone(cluster.uri):
        wait_for(
            lambda: status(cluster.uri)["last_full_check_ms"], "the check that was asked for", 60
        )
        wait_for(lambda: left(cluster.uri) == 0, "the copies", timeout=60, pause=0.3)
    assert check() == (0, {"ledgers": 3, "copies_short": 0, "marked": 0, "lists_missing": 0})
    for wrong in (("--now",), ("--bookie", newcomer), ("7",)):
        where = ("--config", str(first[0].config)) if wrong[0] == "--now" else ()
        there = where or ("--metadata", cluster.uri)
        assert bkbox("autorecovery", "check", *wrong, *there, check=False).returncode == 2
    assert short


def test_a_bookie_compares_its_own_copies_when_it_is_asked_to(cluster: Cluster) -> None:
    first = cluster.start(3)

    async def write() -> LedgerId:
        async with hands(cluster.uri) as our:
            ledger = await our.closed(40)
            (newcomer,) = await asyncio.to_thread(cluster.start, 1)
            await our.rename(ledger, first[0], newcomer.bookie_id)
            return ledger

    ledger = asyncio.run(write())
    config = str(cluster.bookies[3].config)
    done = bkbox("autorecovery", "check", str(ledger), "--config", config, "-o", "json")
    job = json.loads(done.stdout)
    assert job["arguments"] == {"ledgers": str(ledger)}
    bkbox("job", "watch", str(job["id"]), "--config", config)
    shown = json.loads(
        bkbox("job", "show", str(job["id"]), "--config", config, "-o", "json").stdout
    )
    assert (shown["state"], shown["counts"]["copies_mended"]) == ("done", 40)

    async def judge() -> None:
        async with hands(cluster.uri) as our:
            assert await our.lacking(ledger) == {}

    asyncio.run(judge())
