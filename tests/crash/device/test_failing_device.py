"""A device fails while the host stays up: what the kernel had not written is gone, and the boot id is the same."""

from __future__ import annotations

import asyncio
import ctypes
import os
import random
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from bkbox.client.client import connect
from bkbox.errors import BkboxError, DiskFailedError
from bkbox.storage.disk.lock import DiskLock
from bkbox.storage.files import RealFiles
from bkbox.wire.metadata.ledger import DigestType
from tests.crash.device.blockdevice import BlockDevice, missing
from tests.crash.device.campaign import MODES
from tests.crash.device.combinations import combinations
from tests.crash.device.host import HostedBookie, Promises, payload
from tests.harness.waiting import wait_for
from tests.interop.javaparts import JavaBookie

LEDGERS = range(1, 7)
ENTRIES = 100

pytestmark = pytest.mark.skipif(missing() != "", reason=f"no block device: {missing()}")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def device(stack: ExitStack, tmp_path: Path) -> BlockDevice:
    return stack.enter_context(BlockDevice(tmp_path / "device"))


def started(
    stack: ExitStack, mode: str, scratch: Path, *disks: Path, metadata: str = "", name: str = "b"
) -> tuple[HostedBookie, Promises]:
    """A bookie with ledgers that it has in its metadata and adds to; it ends before its devices."""
    bookie = HostedBookie(scratch, metadata, name=name)
    stack.callback(bookie.ensure_gone)
    bookie.init_on(mode, disks)
    bookie.start_again()
    bookie.name_ledgers(LEDGERS)
    return bookie, Promises(bookie)


def write_back(device: BlockDevice) -> None:
    """Have the kernel write what it has; errors are the device's."""
    subprocess.run(["sync", "-f", device.path], check=False, capture_output=True)


def load(bookie: HostedBookie, promises: Promises) -> None:
    """Some entries that are proven, one fence, and some that may not be."""
    for ledger in LEDGERS:
        assert promises.add(ledger, range(20)) == 20
    promises.fence(LEDGERS[0])
    for ledger in LEDGERS[1:]:
        assert promises.add(ledger, range(20, 40)) == 20


@pytest.mark.parametrize(
    ("mode", "how", "metadata_on_device"),
    [
        ("write", "eio-stop", False),
        ("write", "eio-kill", False),
        ("write", "gone-kill", False),
        ("write", "eio-stop", True),
        ("write", "gone-kill", True),
        ("sync", "eio-kill", False),
        ("sync", "gone-kill", True),
        ("journal", "eio-kill", False),
        ("journal", "gone-stop", False),
    ],
)
def test_a_device_fails_and_is_mounted_anew(
    stack: ExitStack,
    device: BlockDevice,
    tmp_path: Path,
    mode: str,
    how: str,
    metadata_on_device: bool,
) -> None:
    metadata = f"sqlite:{device.path}/metadata.db" if metadata_on_device else ""
    bookie, promises = started(
        stack, mode, tmp_path, device.path / "disk", metadata=metadata, name="b"
    )
    load(bookie, promises)
    what, _, then = how.partition("-")
    device.eio() if what == "eio" else device.vanish()
    promises.add(LEDGERS[1], range(40, 300))
    if then == "stop":
        bookie.stop()
    else:
        bookie.kill()
    device.come_back()
    bookie.start_again()
    promises.kept(unknown_ok=mode == "write")
    assert bookie.classes() != {"clean"}


@pytest.mark.parametrize(("mode", "what"), combinations(["sync", "write"], ["eio", "gone"]))
def test_one_of_two_devices_fails(
    stack: ExitStack, device: BlockDevice, tmp_path: Path, mode: str, what: str
) -> None:
    """What is on the other device is whole: none of it is in limbo, or fenced."""
    other = stack.enter_context(BlockDevice(tmp_path / "other"))
    disks = [device.path / "disk", other.path / "disk"]
    bookie, promises = started(stack, mode, tmp_path, *disks)
    for ledger in LEDGERS:
        assert promises.add(ledger, range(40)) == 40
    before = {disk["path"]: disk["ledgers"] for disk in bookie.status()["disks"]}
    assert min(before.values()) >= 1, before
    device.eio() if what == "eio" else device.vanish()
    write_back(device)
    bookie.kill()
    device.come_back()
    bookie.start_again()
    found = promises.kept(unknown_ok=mode == "write")
    classes = {disk["path"]: disk["crash_class"] for disk in bookie.status()["disks"]}
    assert classes[str(disks[1])] == "process crash"
    assert classes[str(disks[0])] == "host crash"
    assert found.served >= 40 * before[str(disks[1])]
    limbo = bookie.limbo
    assert limbo <= before[str(disks[0])]
    writable = sum(promises.add(ledger, [1000]) for ledger in LEDGERS)
    assert writable >= before[str(disks[1])]
    assert mode == "write" or not limbo


@pytest.mark.parametrize(("mode", "how"), combinations(MODES, ["unseen", "seen"]))
def test_a_write_back_fails_and_the_mount_stays(
    stack: ExitStack, device: BlockDevice, tmp_path: Path, mode: str, how: str
) -> None:
    """The kernel takes the pages for clean, and says so once at most: to an fsync of someone else, if ``seen``."""
    disk = device.path / "disk"
    bookie, promises = started(stack, mode, tmp_path, disk)
    load(bookie, promises)
    bookie.kill()
    device.eio()
    for segment in (disk / "entrylog").iterdir():
        fd = os.open(segment, os.O_RDWR)
        try:
            lose_pages(fd, unseen=how == "unseen")
        finally:
            os.close(fd)
    device.heal()
    for segment in (disk / "entrylog").iterdir():
        fd = os.open(segment, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
    try:
        bookie.start_again()
    except AssertionError:
        bookie.ensure_gone()
        device.come_back()
        bookie.start_again()
    promises.kept(unknown_ok=mode == "write")


def test_each_disk_of_a_file_system_hears_of_its_error(device: BlockDevice) -> None:
    """The kernel reports it to descriptors that were open before its first report: the locks are."""
    folders = [device.path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    with (device.path / "one" / "data").open("wb", buffering=0) as file:
        file.write(bytes(8192))
        os.fsync(file.fileno())
        file.seek(0)
        file.write(b"lost")
        device.eio()
        lose_pages(file.fileno(), unseen=False)
        device.heal()
    locks = [DiskLock(folder) for folder in folders]
    for folder, lock in zip(folders, locks, strict=True):
        files = RealFiles()
        files.hold(folder, lock.fileno())
        with pytest.raises(DiskFailedError):
            files.sync_file_system(folder)
        lock.release()


def lose_pages(fd: int, *, unseen: bool) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    flags = 2 if unseen else 7  # SYNC_FILE_RANGE_WRITE alone, or with both waits
    libc.sync_file_range(fd, ctypes.c_long(0), ctypes.c_long(0), flags)


def test_the_file_system_becomes_read_only_while_the_bookie_runs(
    stack: ExitStack, device: BlockDevice, tmp_path: Path
) -> None:
    bookie, promises = started(stack, "write", tmp_path, device.path / "disk")
    load(bookie, promises)
    device.eio()
    write_back(device)  # the kernel aborts its journal: the mount is read-only from now on

    def refused() -> bool:
        return promises.add(LEDGERS[1], range(1000, 1001)) == 0

    wait_for(refused, "adds to be refused")
    bookie.stop()
    device.come_back()
    bookie.start_again()
    promises.kept()


def test_an_operator_remounts_read_only_and_back(
    stack: ExitStack, device: BlockDevice, tmp_path: Path
) -> None:
    """Forced, with the bookie's files open for writing (sysrq u does so): what is dirty stays so."""
    bookie, promises = started(stack, "write", tmp_path, device.path / "disk")
    load(bookie, promises)
    forced = subprocess.run(
        ["mount", "-n", "-o", "remount,abort", device.path], capture_output=True, text=True
    )
    assert forced.returncode == 0, forced.stderr
    promises.add(LEDGERS[1], range(1000, 1100))
    bookie.kill()
    device.come_back()
    bookie.start_again()
    promises.kept()


@pytest.mark.timeout(180)
@pytest.mark.parametrize("what", ["eio", "gone"])
def test_one_device_fails_and_another_bookie_is_away(
    stack: ExitStack, device: BlockDevice, tmp_path: Path, what: str
) -> None:
    """E = WQ = 3, AQ = 2: entries that two bookies have, of which one loses its device and the other is down. A
    recovery must not close the ledger before what was acknowledged; when the other is back, all is there.
    """
    metadata = f"sqlite:{tmp_path}/cluster.db"
    disks = [device.path / "disk", tmp_path / "away" / "disk", tmp_path / "late" / "disk"]
    failing, away, late = bookies = [
        HostedBookie(tmp_path, metadata, name=name) for name in ("failing", "away", "late")
    ]
    for bookie, disk in zip(bookies, disks, strict=True):
        bookie.init_on("write", [disk])
        stack.callback(bookie.ensure_gone)
        bookie.start_again()
    ledger = asyncio.run(write(metadata, late))
    device.eio() if what == "eio" else device.vanish()
    failing.kill()
    away.kill()
    late.start_again()
    device.come_back()
    failing.start_again()
    asyncio.run(recovery_is_stuck_or_right(metadata, ledger))
    away.start_again()
    wait_for(lambda: asyncio.run(read_all(metadata, ledger)), "all to be there", timeout=60)


async def write(metadata: str, late: HostedBookie | JavaBookie) -> int:
    """One entry on all bookies, the rest on all but one. With the digest of ``raw``."""
    async with connect(metadata, rng=random.Random(1)) as client:
        writer = await client.create_ledger(3, 3, 2, DigestType.CRC32)
        await writer.append(payload(writer.ledger_id, 0))
        await asyncio.to_thread(late.kill)
        for entry in range(1, ENTRIES):
            await writer.append(payload(writer.ledger_id, entry))
        await writer.abort()
        return int(writer.ledger_id)


async def recovery_is_stuck_or_right(metadata: str, ledger: int) -> None:
    async with connect(metadata, rng=random.Random(2), backoff_max_s=0.2) as client:
        with suppress(BkboxError, TimeoutError):
            async with asyncio.timeout(4):
                reader = await client.open_ledger(ledger)
                assert reader.last_add_confirmed >= ENTRIES - 1


async def read_all(metadata: str, ledger: int) -> bool:
    """Whether it could be recovered by now; it is whole then."""
    async with connect(metadata, rng=random.Random(3), backoff_max_s=0.2) as client:
        try:
            async with asyncio.timeout(15):
                reader = await client.open_ledger(ledger)
                found = [entry.payload async for entry in reader.read()]
        except (BkboxError, TimeoutError):
            return False
    assert found == [payload(ledger, entry) for entry in range(ENTRIES)]
    return True
