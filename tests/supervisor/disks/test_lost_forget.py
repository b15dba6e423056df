"""A disk that gave a ledger away, and whose log has lost that it did: the ledger has one home all the same."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bkbox.storage.disk.identity import read_identity
from bkbox.storage.files import RealFiles
from bkbox.storage.log.records import Kind
from bkbox.storage.log.segment import ENTRY_LOG_MAGIC, ScannedRecord, SegmentName, scan
from tests.harness.processes import BookieProcess, bkbox
from tests.harness.raw3 import EOK, RawClient3
from tests.harness.waiting import wait_for

LEDGERS = range(1, 9)


@pytest.fixture
def bookie(tmp_path: Path) -> Iterator[BookieProcess]:
    made = BookieProcess(tmp_path, f"sqlite:{tmp_path}/cluster.db")
    made.init(disks=2, run_dir=str(tmp_path), restart_backoff_initial_s=0.05)
    made.start()
    yield made
    made.ensure_gone()


def views(bookie: BookieProcess) -> list[dict[str, object]]:
    done = bkbox("disk", "list", "--config", str(bookie.config), "-o", "json")
    found: list[dict[str, object]] = json.loads(done.stdout)
    return found


def add(bookie: BookieProcess, entries: range) -> None:
    with RawClient3(bookie.port) as client:
        assert isinstance(client, RawClient3)
        for ledger in LEDGERS:
            for entry in entries:
                assert client.add3(ledger, entry, b"%d %d" % (ledger, entry)) == EOK


def damage_forgets(disk: Path) -> int:
    """Flip a bit of each; how many there are."""
    identity = read_identity(RealFiles(), disk)
    assert identity is not None
    count = 0
    for path in (disk / "entrylog").glob("*.log"):
        name = SegmentName(ENTRY_LOG_MAGIC, identity.uuid, int(path.stem))
        file = RealFiles().open_read(path)
        try:
            places = [
                item.end - 1
                for item in scan(file, name, 0)
                if isinstance(item, ScannedRecord) and item.kind is Kind.FORGET
            ]
        finally:
            file.close()
        data = bytearray(path.read_bytes())
        for place in places:
            data[place] ^= 1
        path.write_bytes(data)
        count += len(places)
    return count


@pytest.mark.parametrize("when", ["at a start", "while it runs"])
def test_what_came_back_is_forgotten_again(bookie: BookieProcess, when: str) -> None:
    add(bookie, range(5))
    source = bookie.disks[0]
    before = views(bookie)[0]["ledgers"]
    assert before
    here = ["--config", str(bookie.config)]
    bkbox("disk", "drain", str(source), *here)
    wait_for(lambda: views(bookie)[0]["state"] == "drained", "the drain", timeout=60)
    add(bookie, range(5, 10))  # what only the new home has
    if when == "at a start":
        assert bookie.stop() == 0
    else:
        worker = bookie.worker(0)
        worker.suspend()
    assert damage_forgets(source) == before
    shutil.rmtree(source / "index")
    if when == "at a start":
        bookie.start()
    else:
        worker.kill()
        wait_for(
            lambda: (found := views(bookie)[0])["state"] == "drained" and found["restarts"],
            "its next worker",
            timeout=60,
        )
    told = f"and on {source}, and forgotten on {source}"
    wait_for(lambda: told in bookie.stderr, told)
    assert [(each["ledgers"], each["limbo_ledgers"]) for each in views(bookie)] == [(0, 0), (8, 0)]
    with RawClient3(bookie.port) as client:
        assert isinstance(client, RawClient3)
        for ledger in LEDGERS:
            assert {client.read3(ledger, entry).status for entry in range(10)} == {EOK}
    add(bookie, range(10, 12))
    bookie.kill()
    bookie.start()
    with RawClient3(bookie.port) as client:
        assert isinstance(client, RawClient3)
        for ledger in LEDGERS:
            assert {client.read3(ledger, entry).status for entry in range(12)} == {EOK}
