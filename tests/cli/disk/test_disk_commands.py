"""Disks are listed, added, drained, replaced and removed with commands, on real bookies that serve meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bkbox.cli.lib.exit_codes import ExitCode
from tests.harness.processes import BookieProcess, bkbox
from tests.harness.raw import RawClient
from tests.harness.raw3 import EIO, EOK, RawClient3
from tests.harness.waiting import wait_for
from tests.supervisor.disks.test_drain import (
    QUICK,
    command,
    disks,
    drained,
    jobs,
    remove_from_config,
)

Make = Callable[..., BookieProcess]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[BookieProcess] = []

    def one(name: str = "bookie", disks: int = 2, **settings: object) -> BookieProcess:
        bookie = BookieProcess(tmp_path, f"sqlite:{tmp_path}/cluster.db", name=name)
        made.append(bookie)
        return bookie.init(disks=disks, **{**QUICK, **settings})

    yield one
    for bookie in made:
        bookie.ensure_gone()


def write(bookie: BookieProcess, ledgers: range, entries: int = 3, payload: bytes = b"x") -> None:
    with RawClient3(bookie.port) as client:
        for ledger in ledgers:
            for entry in range(entries):
                assert add(client, ledger, entry, payload) == EOK


def add(client: RawClient, ledger: int, entry: int, payload: bytes = b"x") -> int:
    assert isinstance(client, RawClient3)
    return client.add3(ledger, entry, payload)


def statuses(bookie: BookieProcess, ledgers: range, entry: int = 0) -> dict[int, int]:
    with RawClient3(bookie.port) as client:
        assert isinstance(client, RawClient3)
        return {ledger: client.read3(ledger, entry).status for ledger in ledgers}


def refused(bookie: BookieProcess, *arguments: str) -> str:
    done = command(bookie, *arguments, check=False)
    assert done.returncode in (ExitCode.FAILED, ExitCode.USAGE), done.stderr
    assert "Traceback" not in done.stderr
    return str(done.stderr)


def drains(bookie: BookieProcess) -> list[dict[str, Any]]:
    return [job for job in jobs(bookie) if job["kind"] == "drain"]


def name_disks(bookie: BookieProcess, *paths: Path) -> None:
    remove_from_config(bookie, *paths)


def test_a_disk_is_added_and_moves_nothing(make: Make, tmp_path: Path) -> None:
    bookie = make(disks=1).start()
    write(bookie, range(1, 11))
    [old] = bookie.disks
    new = bookie.root / "disk2"
    assert "put it into `disks` there first" in refused(bookie, "disk", "add", str(new))
    name_disks(bookie, old, new)
    assert "is not there: mount the disk" in refused(bookie, "disk", "add", str(new))
    new.mkdir()
    (new / "somebody's file").write_text("x")
    assert "is not empty" in refused(bookie, "disk", "add", str(new))
    (new / "somebody's file").unlink()
    assert [disk["path"] for disk in disks(bookie)] == [str(old)], "nothing was changed"
    said = command(bookie, "disk", "add", str(new)).stderr
    assert "is on the same file system as" in said
    before, added = disks(bookie)
    assert (before["ledgers"], added["ledgers"], added["state"]) == (10, 0, "in service")
    write(bookie, range(11, 31))
    before, added = disks(bookie)
    assert before["ledgers"] + added["ledgers"] == 30
    assert 5 <= added["ledgers"] <= 15, "by free bytes, which are the same here"
    assert set(statuses(bookie, range(1, 31)).values()) == {EOK}
    assert bookie.stop() == 0
    assert command(bookie, "cookie", "verify").stdout.strip() == "cookies match"
    bookie.start()
    assert set(statuses(bookie, range(1, 31)).values()) == {EOK}


def test_disks_that_are_none_for_this_bookie(make: Make) -> None:
    other = make("other", disks=1)
    bookie = make("bookie", disks=1).start()
    [mine] = bookie.disks
    [theirs] = other.disks
    name_disks(bookie, mine, theirs)
    assert "bookieHost of its DISK file is" in refused(bookie, "disk", "add", str(theirs))
    link = bookie.root / "link"
    link.symlink_to(mine)
    name_disks(bookie, mine, link)
    assert "is the same folder as" in refused(bookie, "disk", "add", str(link))
    name_disks(bookie, mine)
    assert "only disk of the bookie" in refused(bookie, "disk", "drain", str(mine))
    assert "only disk of the bookie" in refused(bookie, "disk", "remove", str(mine))
    assert "no disk of this bookie" in refused(bookie, "disk", "drain", str(theirs))
    assert [disk["state"] for disk in disks(bookie)] == ["in service"]


def test_a_drain_is_given_up_and_begun_again(make: Make) -> None:
    """Also over a restart, at any point: ledgers stay where they are, and the disk takes new ones again."""
    bookie = make(jobs_disk_bytes_per_second=30_000).start()
    for ledger in range(1, 21):
        write(bookie, range(ledger, ledger + 1), 10, b"x" * 10_000)
    source = bookie.disks[0]
    assert "drain it first" in refused(bookie, "disk", "remove", str(source))
    plan = json.loads(
        command(bookie, "disk", "drain", str(source), "--dry-run", "-o", "json").stdout
    )
    assert (plan["ledgers"], plan["refusal"]) == (10, "")
    command(bookie, "disk", "drain", str(source))
    assert "already" in refused(bookie, "disk", "drain", str(source))
    first, _second = disks(bookie)
    assert (first["state"], first["read_only"]) == ("draining", ["draining"])
    with RawClient3(bookie.port) as client:
        assert add(client, 1, 10) == EOK, "ledgers on a draining disk are written"
    assert "being drained itself" in refused(bookie, "disk", "drain", str(bookie.disks[1]))
    said = refused(bookie, "disk", "remove", str(source))
    assert "ledgers are left on" in said
    bookie.kill()
    [offline, _] = json.loads(command(bookie, "disk", "list", "-o", "json", check=False).stdout)
    assert (offline["state"], offline["read_only"]) == ("not running", ["draining"])
    bookie.start()
    wait_for(lambda: disks(bookie)[0]["state"] == "draining", "the drain to go on")
    before = {disk["path"]: disk["ledgers"] for disk in disks(bookie)}
    write(bookie, range(101, 111), 1)
    after = {disk["path"]: disk["ledgers"] for disk in disks(bookie)}
    assert after[str(source)] <= before[str(source)], "no new ledger, not even after a restart"
    command(bookie, "disk", "drain", str(source), "--undo")
    wait_for(lambda: drains(bookie)[-1]["state"] == "cancelled", "the end of the job")
    assert disks(bookie)[0]["state"] == "in service"
    write(bookie, range(201, 221))
    assert disks(bookie)[0]["ledgers"] > 0, "it takes new ledgers again"
    assert set(statuses(bookie, range(1, 21), 9).values()) == {EOK}
    with RawClient3(bookie.port) as client:
        assert add(client, 1, 11) == EOK
        command(bookie, "job", "rate", "--all", "0")
        command(bookie, "disk", "drain", str(source))
        wait_for(lambda: drained(bookie), "the end of the drain", timeout=120)
        assert add(client, 1, 12) == EOK, "a connection from before goes on"
    assert set(statuses(bookie, range(1, 21), 9).values()) == {EOK}


def test_a_removed_disk_is_known_as_such(make: Make) -> None:
    bookie = make(disks=3).start()
    write(bookie, range(1, 13))
    first, second, third = bookie.disks
    command(bookie, "disk", "drain", str(first))
    wait_for(lambda: drained(bookie), "the end of the drain")
    said = command(bookie, "disk", "remove", str(first)).stderr
    assert "or the next start refuses" in said
    assert f"answers commands on {second}/admin.sock" in said
    name_disks(bookie, second, third)
    assert len(disks(bookie)) == 2, "found by the changed configuration"
    assert set(statuses(bookie, range(1, 13)).values()) == {EOK}
    assert bookie.stop() == 0
    name_disks(bookie, first, second, third)
    done = command(bookie, "run", check=False)
    assert done.returncode == ExitCode.REFUSED
    assert "take it out of `disks`" in done.stderr
    name_disks(bookie, second, third)
    bookie.start()
    assert {disk["limbo_ledgers"] for disk in disks(bookie)} == {0}
    assert set(statuses(bookie, range(1, 13)).values()) == {EOK}


def test_a_disk_that_fails_is_replaced_while_the_rest_serves(make: Make, tmp_path: Path) -> None:
    """Its ledgers answer EIO until the new disk is there, then 'not known', then they are back from the peer."""
    bookies = [make(name, run_dir=str(tmp_path / name)).start() for name in ("bookie0", "bookie1")]
    metadata = bookies[0].metadata
    written = {}
    for number in range(8):
        made = bkbox(
            *("ledger", "write", "--metadata", metadata, "-e", "2", "-w", "2", "-a", "2"),
            input=f"one {number}\ntwo\n",
        )
        written[int(made.stdout)] = number
    bookie = bookies[0]
    bad = bookie.disks[0]
    on_bad, on_good = (disk["ledgers"] for disk in disks(bookie))
    assert on_bad >= 2
    assert on_good >= 2
    for more in ("--yes", "--dry-run", "--output=json"):  # the last one: it does not even ask
        said = refused(bookie, "disk", "replace", str(bad), str(bad), more)
        assert "works: drain it" in said
        assert "Go on?" not in said
    bad.rename(bookie.root / "pulled out")
    bookie.worker(0).kill()
    wait_for(lambda: state_of(bookie, bad) == "failed", "the failure to be seen", timeout=60)
    view = disks(bookie)[0]
    assert view["what_to_do"] == (
        f"put an empty disk in its place: bkbox disk replace {bad} NEW_FOLDER --config {bookie.config}"
    )
    responses = statuses(bookie, range(max(written) + 1))
    assert [responses[ledger] for ledger in written].count(EIO) == on_bad, (
        "unknown, and no other answer"
    )
    assert [responses[ledger] for ledger in written].count(EOK) == on_good, "the rest serves on"
    assert "failed" in refused(bookie, "disk", "drain", str(bad))
    assert "is not there" in refused(bookie, "disk", "replace", str(bad), str(bad), "--yes")
    bad.mkdir()
    command(bookie, "disk", "replace", str(bad), str(bad), "--dry-run")
    assert state_of(bookie, bad) == "failed", "nothing was changed"
    command(bookie, "disk", "replace", str(bad), str(bad), "--yes")
    view = disks(bookie)[0]
    assert (view["state"], view["crash_class"]) == ("in service", "disk replaced")
    assert disks(bookie)[1]["limbo_ledgers"] == 0, "only its own ledgers"
    wait_for(lambda: disks(bookie)[0]["limbo_ledgers"] == 0, "repair", timeout=60)
    responses = statuses(bookie, range(max(written) + 1))
    assert [responses[ledger] for ledger in written] == [EOK] * 8
    assert disks(bookie)[0]["ledgers"] == on_bad
    assert bookie.stop() == 0
    assert command(bookie, "cookie", "verify").stdout.strip() == "cookies match"
    old = bookie.root / "pulled out"
    bad.rename(bookie.root / "new one")
    old.rename(bad)
    done = command(bookie, "run", check=False)
    assert done.returncode == ExitCode.REFUSED, "the old disk knows nothing of the time since"


def state_of(bookie: BookieProcess, path: Path) -> str:
    return next(str(disk["state"]) for disk in disks(bookie) if disk["path"] == str(path))
