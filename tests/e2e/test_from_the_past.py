"""Older copies: of a disk, and of the metadata store. Both are refused with what to do, and nothing is denied."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.e2e.test_damage import ENTRIES, OPEN_LEDGER, fill
from tests.harness.fixtures import MakeBookie
from tests.harness.processes import bkbox
from tests.harness.raw import EIO, EOK, RawClient


def test_a_disk_from_the_past_is_refused_and_taken_in_as_a_lost_one(
    make_bookie: MakeBookie, tmp_path: Path
) -> None:
    bookie = make_bookie(disks=1)
    (disk,) = bookie.disks
    bookie.start()
    assert bookie.stop() == 0
    shutil.copytree(disk, tmp_path / "copy")
    bookie.start()
    fill(bookie)
    assert bookie.stop() == 0
    shutil.rmtree(disk)
    shutil.copytree(tmp_path / "copy", disk)

    said = bkbox("run", "--config", str(bookie.config), check=False)
    assert said.returncode == 4
    assert "an older copy of the disk" in said.stderr
    assert f"bkbox cookie repair --config {bookie.config}" in said.stderr
    done = bkbox("cookie", "repair", "--yes", "--config", str(bookie.config))
    assert f"take {disk} in as a lost disk" in done.stderr
    bookie.start()
    with RawClient(bookie.port) as client:
        for entry in range(ENTRIES):
            assert client.read(OPEN_LEDGER, entry).code == EIO


def test_a_metadata_store_from_the_past_is_refused(make_bookie: MakeBookie, tmp_path: Path) -> None:
    bookie = make_bookie(disks=1)
    store, copy = tmp_path / "metadata.db", tmp_path / "copy.db"
    bookie.start()
    fill(bookie)
    assert bookie.stop() == 0
    with closing(sqlite3.connect(store)) as present, closing(sqlite3.connect(copy)) as older:
        present.backup(older)
    bookie.start()
    assert bookie.stop() == 0
    for each in tmp_path.glob("metadata.db*"):
        each.unlink()
    shutil.copy(copy, store)

    said = bkbox("run", "--config", str(bookie.config), check=False)
    assert said.returncode == 4
    assert "the metadata store is an older copy of itself" in said.stderr
    assert "--accept-older-metadata" in said.stderr
    words = ("cookie", "repair", "--yes", "--accept-older-metadata")
    bkbox(*words, "--config", str(bookie.config))
    bookie.start()
    with RawClient(bookie.port) as client:
        for entry in range(ENTRIES):
            assert client.read(OPEN_LEDGER, entry).code == EOK
