"""A bookie, or one of its disks, that is to take no more entries: over restarts, and beside all other reasons."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.cluster import bookies_of, create_ledgers, ledger_of
from tests.harness.processes import BookieProcess, bkbox
from tests.harness.raw3 import EOK, EREADONLY, RawClient3
from tests.harness.waiting import wait_for


@pytest.fixture
def bookie(tmp_path: Path) -> Iterator[BookieProcess]:
    made = BookieProcess(tmp_path, f"sqlite:{tmp_path}/cluster.db")
    made.init(disks=2, run_dir=str(tmp_path))
    made.start()
    yield made
    made.ensure_gone()


def command(bookie: BookieProcess, *arguments: str) -> str:
    done = bkbox(*arguments, "--config", str(bookie.config))
    return done.stdout + done.stderr


def add(bookie: BookieProcess, ledger: int, entry: int, *, recovery: bool = False) -> int:
    with RawClient3(bookie.port) as client:
        assert isinstance(client, RawClient3)
        return client.add3(ledger, entry, recovery=recovery)


def is_read_only(bookie: BookieProcess) -> bool:
    return bookies_of(bookie.metadata)[bookie.bookie_id]


def test_a_bookie_that_is_to_take_no_more(bookie: BookieProcess) -> None:
    create_ledgers(bookie.metadata, [ledger_of(each, [bookie.bookie_id]) for each in (1, 2)])
    assert add(bookie, 1, 0) == EOK
    assert "is writable; nothing was changed" in command(
        bookie, "bookie", "read-only", "on", "--dry-run"
    )
    assert not is_read_only(bookie)
    assert "takes no entries: operator" in command(bookie, "bookie", "read-only", "on")
    for after in ("at once", "killed", "stopped", "a disk lost"):
        assert is_read_only(bookie)
        assert add(bookie, 1, 1) == EREADONLY
        assert add(bookie, 2, 0) == EREADONLY, "nor a new ledger"
        assert add(bookie, 1, 2, recovery=True) == EOK, "repair goes on"
        if after == "a disk lost":
            break
        with RawClient3(bookie.port) as client:
            assert isinstance(client, RawClient3)
            assert client.read3(1, 0).status == EOK
            assert client.fence3(1).status == EOK
        status = bookie.status()
        assert (status["writable"], status["read_only_reasons"]) == (False, ["operator"])
        asked = [each for each in status["warnings"] if "as was asked for" in each["text"]]
        assert [each["command"].split(" --")[0] for each in asked] == ["bkbox bookie read-only off"]
        match after:
            case "at once":
                bookie.kill()
                bookie.start()
            case "killed":
                assert bookie.stop() == 0
                bookie.start()
            case "stopped":
                # the mark is on every disk, so the loss of one is not the end of it
                assert bookie.stop() == 0
                shutil.rmtree(bookie.disks[0])
                bookie.disks[0].mkdir()
                bkbox("cookie", "repair", "--config", str(bookie.config), "--yes")
                bookie.start()
    wait_for(lambda: (bookie.disks[0] / "READONLY").exists(), "the mark on the new disk")
    assert "takes entries" in command(bookie, "bookie", "read-only", "off")
    assert not is_read_only(bookie)
    assert add(bookie, 3, 0) == EOK
    assert not any((disk / "READONLY").exists() for disk in bookie.disks)


def test_a_disk_that_is_to_take_no_more(bookie: BookieProcess) -> None:
    ledgers = range(1, 21)
    assert {add(bookie, ledger, 0) for ledger in ledgers} == {EOK}
    disk = str(bookie.disks[0])
    command(bookie, "disk", "read-only", disk, "--dry-run")
    assert {add(bookie, ledger, 1) for ledger in ledgers} == {EOK}
    command(bookie, "disk", "read-only", disk)
    for new in (100, 150):
        assert not is_read_only(bookie), "the other disk takes entries"
        answers = [add(bookie, ledger, 2) for ledger in ledgers]
        assert set(answers) == {EOK, EREADONLY}
        first, second = json.loads(
            bkbox("disk", "list", "--config", str(bookie.config), "-o", "json").stdout
        )
        assert (first["read_only"], second["read_only"]) == (["operator"], [])
        assert answers.count(EREADONLY) == first["ledgers"]
        assert {add(bookie, ledger, 0) for ledger in range(new, new + 10)} == {EOK}
        after, _other = json.loads(
            bkbox("disk", "list", "--config", str(bookie.config), "-o", "json").stdout
        )
        assert after["ledgers"] == first["ledgers"], "new ledgers go elsewhere"
        bookie.kill()
        bookie.start()
    command(bookie, "disk", "read-only", disk, "--off")
    assert {add(bookie, ledger, 3) for ledger in ledgers} == {EOK}
    both = [command(bookie, "disk", "read-only", str(each)) for each in bookie.disks]
    assert all("takes no more entries" in said for said in both)
    assert is_read_only(bookie)
    assert add(bookie, 1, 4) == EREADONLY
    assert add(bookie, 900, 0, recovery=True) == EOK, "repair finds a place"
    command(bookie, "bookie", "read-only", "off")
    assert is_read_only(bookie), "what is wanted of a disk is another matter"
