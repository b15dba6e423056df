"""Witnesses on real disks and in SQLite: starts that end between any two writes, older copies, failures of disks."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, cast

import pytest

from bkbox.base.ids import BookieId
from bkbox.errors import VersionConflictError
from bkbox.metadata import create
from bkbox.metadata.base import MetadataStore
from bkbox.metadata.versioned import Versioned
from bkbox.storage.disk.dirty_marker import Incarnation
from bkbox.storage.files import RealFiles
from bkbox.storage.log.records import AckAfter
from bkbox.supervisor.boot.witnessing import FAILED_NAME, DiskWitnesses, read_record, read_witness
from bkbox.supervisor.disks import witness
from bkbox.supervisor.disks.disks import Disk
from bkbox.supervisor.disks.witness import WITNESS_NAME, disk_rollback, store_rollback
from tests.harness.cluster import NOBODY, create_ledgers, ledger_of
from tests.harness.faultyfiles import Crash, CrashableFiles
from tests.harness.fixtures import MakeBookie
from tests.harness.processes import BookieProcess, bkbox
from tests.harness.raw import EFENCED, EIO, EOK, RawClient

ME = BookieId("b:1")
NEVER = 1 << 62
"""Number of the last checkpoint, where only generations are of interest."""


class Store:
    """A metadata store of which the n-th write of a record, from now on, is cut short: before it, or after it."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self.read_disk_record = store.read_disk_record
        self.crash_at = self.writes = 0
        self.answer_is_lost = False

    async def write_disk_record(
        self, bookie: BookieId, record: bytes, expected_version: int | None
    ) -> Versioned[bytes]:
        self.writes += 1
        if 2 * self.writes - 1 == self.crash_at:
            raise Crash
        stored = await self._store.write_disk_record(bookie, record, expected_version)
        if 2 * self.writes == self.crash_at:
            raise Crash
        if self.answer_is_lost:
            raise VersionConflictError("it was written twice")
        return stored


class Bookie:
    """Two disks, the metadata store in a file, and a run directory."""

    def __init__(self, folder: Path, store: MetadataStore) -> None:
        self.folder = folder
        self.files = CrashableFiles(folder, random.Random(1))
        self.run_dir = folder / "run"
        self.run_dir.mkdir()
        self.store = Store(store)
        self.disks: list[Disk] = []
        for number in range(2):
            (folder / f"disk{number}").mkdir()

    async def begin(self) -> DiskWitnesses:
        """A start up to where the disks are used."""
        self.disks = [
            Disk(number, self.folder / f"disk{number}", f"uuid-{number}", cast(Any, None))
            for number in range(2)
        ]
        found = DiskWitnesses(self.files, ME, self.run_dir)
        await found.begin(cast(MetadataStore, self.store), self.disks)
        for disk in self.disks:
            disk.run = Incarnation("boot", AckAfter.WRITE, "run")
            found.join(disk)
        return found

    async def start(self) -> DiskWitnesses:
        """One that comes to use them, and notes so."""
        found = await self.begin()
        for disk in self.disks:
            disk.recovered = True
            disk.stats = {"durable": [found.generation, 1, 100 * found.generation]}
        assert await found.note(cast(MetadataStore, self.store), self.disks)
        return found

    async def past(self) -> list[str]:
        """What of the store and of each disk is from the past."""
        record, _version = await read_record(cast(MetadataStore, self.store), ME)
        found = {f"uuid-{n}": read_witness(RealFiles(), self.disk(n)) for n in range(2)}
        return [
            store_rollback(record, found),
            *(disk_rollback(record, uuid, each, NEVER) for uuid, each in found.items()),
        ]

    def disk(self, number: int) -> Path:
        return self.folder / f"disk{number}"

    def copy(self, path: Path) -> Path:
        copy = self.folder / "copies" / path.name
        shutil.copytree(path, copy)
        return copy

    def put_back(self, path: Path) -> None:
        shutil.rmtree(path)
        shutil.copytree(self.folder / "copies" / path.name, path)

    async def crash(self, step: int) -> bool:
        """A start that is killed at a step; whether it got there."""
        self.store.writes = 0
        of_store = step if step <= 4 else 0
        self.store.crash_at = of_store
        if not of_store:
            self.files.crash_at(step - 4)
        try:
            await self.start()
        except Crash:
            return True
        finally:
            self.store.crash_at = 0
            self.files = self.files.next_process()
        return False


def on_bookie(folder: Path, scenario: Any) -> None:
    async def go() -> None:
        async with await create(f"sqlite:{folder}/cluster.db") as store:
            await scenario(Bookie(folder, store))

    asyncio.run(cast(Coroutine[Any, Any, None], go()))


def test_each_start_has_a_generation_of_its_own(tmp_path: Path) -> None:
    async def scenario(bookie: Bookie) -> None:
        assert await bookie.past() == ["", "", ""]
        for generation in (1, 2, 3):
            found = await bookie.start()
            assert found.generation == generation
            assert await bookie.past() == ["", "", ""]
            assert found.seen(bookie.disks[0]) == [generation, 1, 100 * generation]
            writes = bookie.store.writes
            assert await found.note(cast(MetadataStore, bookie.store), bookie.disks)
            assert bookie.store.writes == writes, "nothing has changed"

    on_bookie(tmp_path, scenario)


def test_starts_that_end_between_any_two_writes_accuse_nobody(tmp_path: Path) -> None:
    async def scenario(bookie: Bookie) -> None:
        await bookie.start()
        bookie.copy(bookie.disk(0))
        step, newest = 1, 1
        while await bookie.crash(step):
            assert await bookie.past() == ["", "", ""], step
            if step % 3 == 0:
                found = await bookie.start()
                assert found.generation > newest
                newest = found.generation
                assert await bookie.past() == ["", "", ""]
            step += 1
        assert step > 15
        bookie.put_back(bookie.disk(0))
        store, first, second = await bookie.past()
        assert (store, second) == ("", "")
        assert "last used by start 1" in first

    on_bookie(tmp_path, scenario)


def test_an_older_copy_is_noticed_though_starts_were_cut_short_since(tmp_path: Path) -> None:
    async def scenario(bookie: Bookie) -> None:
        await bookie.start()
        bookie.copy(bookie.disk(1))
        await bookie.start()
        for step in range(1, 16):
            await bookie.crash(step)
        bookie.put_back(bookie.disk(1))
        store, first, second = await bookie.past()
        assert (store, first) == ("", "")
        assert "last used by start 1" in second

    on_bookie(tmp_path, scenario)


@pytest.mark.parametrize("lost", [False, True])
def test_a_store_that_is_an_older_copy_or_lost_its_record_is_noticed(
    tmp_path: Path, lost: bool
) -> None:
    async def scenario(bookie: Bookie) -> None:
        store = bookie.store._store
        await bookie.start()
        older = await store.read_disk_record(ME)
        assert older is not None
        await bookie.start()
        newer = await store.read_disk_record(ME)
        assert newer is not None
        value = witness.encode_record(witness.NOTHING) if lost else older.value
        await store.write_disk_record(ME, value, newer.version)
        assert (await bookie.past())[0]

    on_bookie(tmp_path, scenario)


def test_a_write_whose_answer_was_lost_counts_and_one_of_another_does_not(tmp_path: Path) -> None:
    async def scenario(bookie: Bookie) -> None:
        bookie.store.answer_is_lost = True
        found = await bookie.start()
        bookie.store.answer_is_lost = False
        assert await bookie.past() == ["", "", ""]
        await bookie.start()
        bookie.disks[0].stats = {"durable": [9, 9, 900]}
        with pytest.raises(VersionConflictError):
            await found._write(cast(MetadataStore, bookie.store), witness.NOTHING)

    on_bookie(tmp_path, scenario)


def test_a_record_goes_on_after_a_write_that_took_effect_unheard(tmp_path: Path) -> None:
    async def scenario(bookie: Bookie) -> None:
        found = await bookie.start()
        store = cast(MetadataStore, bookie.store)
        unheard = witness.with_disks(found._record, found.generation, found._record.disks)
        await bookie.store.write_disk_record(ME, witness.encode_record(unheard), found._version)
        found.fail(bookie.disks[0], bookie.disks, "EIO")
        assert await found.note(store, bookie.disks)
        record, _version = await read_record(store, ME)
        assert record.sequence == unheard.sequence + 1
        assert record.disks[bookie.disks[0].uuid].failed == "EIO"

    on_bookie(tmp_path, scenario)


@pytest.mark.parametrize("known_by", ["disk", "run directory", "store"])
def test_a_failed_disk_is_known_elsewhere_until_it_is_settled(
    tmp_path: Path, known_by: str
) -> None:
    async def scenario(bookie: Bookie) -> None:
        found = await bookie.start()
        bad, good = bookie.disks
        before = (bad.path / WITNESS_NAME).read_bytes()
        found.fail(bad, bookie.disks, "EIO")
        assert (bad.path / WITNESS_NAME).read_bytes() == before, "it cannot be relied on"
        if known_by == "store":
            assert await found.note(cast(MetadataStore, bookie.store), bookie.disks)
            (good.path / WITNESS_NAME).unlink()
        if known_by == "run directory":
            (good.path / WITNESS_NAME).unlink()
        if known_by != "run directory":
            (bookie.run_dir / FAILED_NAME).unlink()
        again = await bookie.start()
        bad, good = bookie.disks
        assert again.failure_of(bad) == "EIO"
        assert again.failure_of(good) == ""
        again.clear_failure(bad, bookie.disks)
        assert await again.note(cast(MetadataStore, bookie.store), bookie.disks)
        assert not (bookie.run_dir / FAILED_NAME).exists()
        last = await bookie.start()
        assert [last.failure_of(disk) for disk in bookie.disks] == ["", ""]

    on_bookie(tmp_path, scenario)


@pytest.mark.parametrize("data", [b"", b"x", b"[]", b'{"uuid-0"', b"\xff\xfe"])
def test_what_cannot_be_read_says_nothing(tmp_path: Path, data: bytes) -> None:
    async def scenario(bookie: Bookie) -> None:
        await bookie.start()
        (bookie.run_dir / FAILED_NAME).write_bytes(data)
        (bookie.disk(0) / WITNESS_NAME).write_bytes(data)
        store, first, second = await bookie.past()
        assert (store, second) == ("", "")
        assert "start 0" in first, "a witness that is gone cannot say that the disk is the newest"
        found = await bookie.start()
        assert found.failure_of(bookie.disks[0]) == ""

    on_bookie(tmp_path, scenario)


# ---- a bookie ------------------------------------------------------------------------------------


def filled(make_bookie: MakeBookie) -> BookieProcess:
    """Ledgers 1 and 2 with entries 0..4."""
    bookie = make_bookie(disks=1).start()
    create_ledgers(bookie.metadata, [ledger_of(n, [bookie.bookie_id, NOBODY]) for n in (1, 2, 3)])
    add(bookie, range(5))
    return bookie


def add(bookie: BookieProcess, entries: range) -> None:
    with RawClient(bookie.port) as client:
        for ledger in (1, 2):
            for number in entries:
                assert client.add(ledger, number, b"x") == EOK


def refused_start(bookie: BookieProcess) -> None:
    with pytest.raises(AssertionError, match=r"older copy|behind"):
        bookie.start()
    bookie.ensure_gone()


def test_a_disk_that_is_an_older_copy_is_taken_in_as_a_lost_one(make_bookie: MakeBookie) -> None:
    bookie = filled(make_bookie)
    assert bookie.stop() == 0
    disk = bookie.disks[0]
    copy = disk.with_name("copy")
    shutil.copytree(disk, copy)
    bookie.start()
    add(bookie, range(5, 10))
    with RawClient(bookie.port) as client:
        assert client.fence(2, 9).code == EOK
    assert bookie.stop() == 0
    shutil.rmtree(disk)
    shutil.copytree(copy, disk)
    refused_start(bookie)
    shown = bkbox("cookie", "verify", "--config", str(bookie.config), check=False)
    assert "older copy" in shown.stdout + shown.stderr
    bkbox("cookie", "repair", "--config", str(bookie.config), "--yes")
    bookie.start()
    with RawClient(bookie.port) as client:
        for ledger in (1, 2):
            assert client.read(ledger, 4).code == EOK
            assert {client.read(ledger, number).code for number in range(5, 12)} == {EIO}
            assert client.add(ledger, 20, b"late") == EFENCED
        assert client.read(3, 0).code == EIO, "it may have been there, too"
    bookie.stop()


def test_a_store_that_is_an_older_copy_is_refused_and_can_be_accepted(
    make_bookie: MakeBookie,
) -> None:
    bookie = filled(make_bookie)
    assert bookie.stop() == 0
    database = Path(bookie.metadata.removeprefix("sqlite:"))
    copy = database.with_name("older")
    copy.write_bytes(database.read_bytes())
    bookie.start()
    assert bookie.stop() == 0
    for path in database.parent.glob(database.name + "-*"):
        path.unlink()
    database.write_bytes(copy.read_bytes())
    refused_start(bookie)
    command = ("cookie", "repair", "--config", str(bookie.config), "--yes")
    refused = bkbox(*command, check=False)
    assert refused.returncode != 0
    assert "--accept-older-metadata" in refused.stdout + refused.stderr
    bkbox(*command, "--accept-older-metadata")
    bookie.start()
    with RawClient(bookie.port) as client:
        assert client.read(1, 4).code == EOK
    assert bookie.stop() == 0
    bookie.start()
    bookie.stop()
