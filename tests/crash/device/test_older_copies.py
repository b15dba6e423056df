"""An older copy in the place of what a bookie came to: of its index, a disk, its metadata, the end of its logs."""

from __future__ import annotations

import re
import shutil
import sqlite3
import struct
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.crash.device.blockdevice import BlockDevice, missing
from tests.crash.device.campaign import MODES
from tests.crash.device.combinations import combinations
from tests.crash.device.host import HostedBookie, Promises
from tests.crash.device.test_rot import records
from tests.harness.java import require_java
from tests.harness.processes import BKBOX, bkbox
from tests.harness.waiting import wait_for
from tests.harness.zookeeper import ZooKeeper

LEDGERS = range(1, 6)
LATER = range(6, 9)


@pytest.fixture
def bookie(tmp_path: Path) -> Iterator[HostedBookie]:
    bookie = HostedBookie(tmp_path)
    yield bookie
    bookie.ensure_gone()


def loaded(bookie: HostedBookie, mode: str, *disks: Path, count: int = 1) -> Promises:
    """With the first of what it has."""
    names = [bookie.root / f"disk{number + 1}" for number in range(count)]
    bookie.init_on(mode, disks or names)
    bookie.start_again()
    bookie.name_ledgers([*LEDGERS, *LATER])
    promises = Promises(bookie)
    for ledger in LEDGERS:
        assert promises.add(ledger, range(40)) == 40
    return promises


def load_more(promises: Promises) -> None:
    for ledger in (*LEDGERS, *LATER):
        assert promises.add(ledger, range(40, 80)) == 40
    promises.fence(LEDGERS[0])
    promises.fence(LATER[0])


def copied(source: Path, target: Path) -> None:
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.sock"))


def refused(bookie: HostedBookie) -> str:
    """What it says as it does not start."""
    with pytest.raises(AssertionError):
        bookie.start_again()
    said = bookie.stderr
    bookie.ensure_gone()
    return said


def run_named_command(bookie: HostedBookie, said: str) -> None:
    """The command of a message, as it stands in it."""
    found = re.search(r"bkbox cookie repair[^\n]*?--config \S+", said)
    assert found, said
    words = found.group().rstrip(".,;)").split()[1:]
    answered = [*words, *(["--yes"] if "--yes" not in words else [])]
    done = subprocess.run([*BKBOX, *answered], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("mode", MODES)
def test_an_older_index(bookie: HostedBookie, tmp_path: Path, mode: str) -> None:
    """Of a disk that was stopped clean both times: it is made anew, and nothing is missing."""
    promises = loaded(bookie, mode)
    assert bookie.stop() == 0
    index = bookie.disks[0] / "index"
    copied(index, tmp_path / "old")
    bookie.start_again()
    load_more(promises)
    assert bookie.stop() == 0
    copied(tmp_path / "old", index)
    bookie.start_again()
    promises.kept(unknown_ok=False)


@pytest.mark.parametrize(("mode", "count"), combinations(MODES, [1, 2]))
def test_an_older_disk(bookie: HostedBookie, tmp_path: Path, mode: str, count: int) -> None:
    """It is refused; taken in, it denies nothing; the other disk is whole."""
    promises = loaded(bookie, mode, count=count)
    assert bookie.stop() == 0
    copied(bookie.disks[0], tmp_path / "old")
    bookie.start_again()
    load_more(promises)
    assert bookie.stop() == 0
    copied(tmp_path / "old", bookie.disks[0])
    said = refused(bookie)
    assert "older copy" in said
    assert str(bookie.disks[0]) in said
    run_named_command(bookie, said)
    bookie.start_again()
    found = promises.kept()
    assert found.unknown or count == 2
    assert bookie.stop() == 0
    bookie.start_again()  # the next start has not forgotten it
    promises.kept()


@pytest.mark.skipif(missing() != "", reason=f"no block device: {missing()}")
@pytest.mark.parametrize("mode", ["sync", "write"])
def test_a_snapshot_that_was_taken_while_it_ran(tmp_path: Path, mode: str) -> None:
    with BlockDevice(tmp_path / "device") as device:
        bookie = HostedBookie(tmp_path)
        try:
            promises = loaded(bookie, mode, device.path / "disk")
            subprocess.run(["sync", "-f", device.path], check=True)
            device.snapshot()
            load_more(promises)
            assert bookie.stop() == 0
            bookie.start_again()
            assert bookie.stop() == 0
            device.restore()
            run_named_command(bookie, refused(bookie))
            bookie.start_again()
            promises.kept()
        finally:
            bookie.ensure_gone()


def copy_database(source: Path, target: Path) -> None:
    for path in target.parent.glob(f"{target.name}*"):
        path.unlink()
    with closing(sqlite3.connect(source)) as here, closing(sqlite3.connect(target)) as there:
        here.backup(there)


def test_older_metadata(bookie: HostedBookie, tmp_path: Path) -> None:
    """Refused; with the newest put back all is as it was; and with the older one, if the operator says so."""
    promises = loaded(bookie, "sync")
    assert bookie.stop() == 0
    database = Path(bookie.metadata.removeprefix("sqlite:"))
    copy_database(database, tmp_path / "old.db")
    bookie.start_again()
    load_more(promises)
    assert bookie.stop() == 0
    copy_database(database, tmp_path / "new.db")
    copy_database(tmp_path / "old.db", database)
    said = refused(bookie)
    assert "older copy" in said
    assert "--accept-older-metadata" in said
    copy_database(tmp_path / "new.db", database)
    bookie.start_again()
    promises.kept(unknown_ok=False)
    assert bookie.classes() == {"clean"}
    assert bookie.stop() == 0
    copy_database(tmp_path / "old.db", database)
    run_named_command(bookie, said)
    bookie.start_again()
    promises.kept()


SYNCED = 3
"""Kind of a record of the log."""
CUTS = ("deleted", "one record", "half", "header")


def wait_for_tail_mark(bookie: HostedBookie) -> None:
    """Until the tail mark covers all that is in the log, or in the journal where there is one. What comes after a mark,
    for 10 ms at most (a second, if the host is lost), has no witness but what follows it in the log.
    """
    disk = bookie.disks[0]
    journals = [path for path in (disk.parent / "journal").rglob("*") if records(path)]
    folder, fields_at = (journals[0].parent, 16) if journals else (disk / "entrylog", 4)

    def is_covered() -> bool:
        tail = disk / "TAIL"
        if not tail.exists() or len(mark := tail.read_bytes()[-48:]) < 48:
            return False
        last = max(each for each in folder.iterdir() if records(each))
        offset, _kind, _body = [item for item in records(last) if item[1] != SYNCED][-1]
        segment, durable = struct.unpack_from(">IQ", mark, fields_at)
        return bool((segment, durable) > (int(last.stem), offset))  # a checkpoint begins a segment

    wait_for(is_covered, "a tail mark")


def cut_log(folder: Path, how: str) -> None:
    path = max(each for each in folder.iterdir() if records(each))
    found = records(path)
    if how == "deleted":
        path.unlink()
    elif how == "one record":
        with path.open("r+b") as file:
            file.truncate(found[-1][0])
    elif how == "half":
        with path.open("r+b") as file:
            file.truncate(found[len(found) // 2][0])
    else:
        with path.open("r+b") as file:
            file.truncate(64)


@pytest.mark.parametrize(("mode", "how", "then"), combinations(MODES, CUTS, ["kill", "stop"]))
def test_a_log_that_was_cut(bookie: HostedBookie, mode: str, how: str, then: str) -> None:
    """At a record, where it looks whole. In the mode ``journal`` the journal has it still."""
    promises = loaded(bookie, mode)
    load_more(promises)
    if then == "stop":
        assert bookie.stop() == 0
    else:
        wait_for_tail_mark(bookie)
        bookie.kill()
    cut_log(bookie.disks[0] / "entrylog", how)
    bookie.start_again()
    promises.kept()


@pytest.mark.parametrize("how", CUTS)
def test_a_log_and_a_journal_that_were_cut(bookie: HostedBookie, how: str) -> None:
    promises = loaded(bookie, "journal")
    load_more(promises)
    wait_for_tail_mark(bookie)
    bookie.kill()
    cut_log(bookie.disks[0] / "entrylog", how)
    (journal,) = {path.parent for path in (bookie.root / "journal").rglob("*") if records(path)}
    cut_log(journal, how)
    bookie.start_again()
    promises.kept()


@pytest.mark.parametrize("how", CUTS)
def test_a_journal_that_was_cut(bookie: HostedBookie, how: str) -> None:
    promises = loaded(bookie, "journal")
    load_more(promises)
    wait_for_tail_mark(bookie)
    bookie.kill()
    (journal,) = {path.parent for path in (bookie.root / "journal").rglob("*") if records(path)}
    cut_log(journal, how)
    bookie.start_again()
    promises.kept()


def test_an_older_zookeeper(bookie: HostedBookie, tmp_path: Path) -> None:
    """Its data are an older copy: refused; with the newest put back all is as it was."""
    require_java()
    folder = tmp_path / "zookeeper"
    folder.mkdir()
    server = ZooKeeper(folder)
    data, old, new = folder / "data", tmp_path / "old", tmp_path / "new"
    try:
        server.start()
        bookie.metadata = server.uri()
        bkbox("cluster", "init", "--metadata", bookie.metadata)
        promises = loaded(bookie, "sync")
        assert bookie.stop() == 0
        server.kill()
        copied(data, old)
        server.start()
        bookie.start_again()
        load_more(promises)
        assert bookie.stop() == 0
        server.kill()
        copied(data, new)
        copied(old, data)
        server.start()
        said = refused(bookie)
        assert "older copy" in said
        assert "--accept-older-metadata" in said
        server.kill()
        copied(new, data)
        server.start()
        bookie.start_again()
        promises.kept(unknown_ok=False)
        assert bookie.classes() == {"clean"}
    finally:
        bookie.ensure_gone()
        server.kill()
