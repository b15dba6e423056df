"""What version 3 alone has on a device that fails: entries of deferred sync that were forced, and explicit LACs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.crash.device.blockdevice import BlockDevice, missing
from tests.crash.device.combinations import combinations
from tests.crash.device.host import HostedBookie, payload
from tests.crash.device.test_failing_device import write_back
from tests.crash.device.test_older_copies import copied, refused, run_named_command
from tests.crash.device.test_rot import ALL_PLACES, ENTRY, LAC, flip, last_record
from tests.harness import raw3
from tests.harness.raw import payload_of

LEDGERS = range(1, 4)
UNKNOWN = (raw3.EIO, raw3.EUNKNOWN)
MODES = ("write", "sync")

pytestmark = pytest.mark.skipif(missing() != "", reason=f"no block device: {missing()}")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


class Promises3:
    """What a bookie acknowledged by version 3, and what is denied of it."""

    def __init__(self, bookie: HostedBookie) -> None:
        self._port = bookie.port
        self._entries: dict[int, set[int]] = {}
        self._lacs: dict[int, int] = {}

    def load(self, entries: range) -> None:
        """Into each ledger: every other entry with deferred sync, then a force, then an explicit LAC."""
        with raw3.RawClient3(self._port) as client:
            for ledger in LEDGERS:
                for entry in entries:
                    data = payload(ledger, entry)
                    status = client.add3(ledger, entry, data, deferred=entry % 2 == 1)
                    assert status == raw3.EOK, status
                assert client.force(ledger) == raw3.EOK
                self._entries.setdefault(ledger, set()).update(entries)
                assert client.write_lac(ledger, entries[-1]) == raw3.EOK
                self._lacs[ledger] = entries[-1]

    def kept(self, *, unknown_ok: bool) -> int:
        """Nothing is denied; number of entries and LACs that are unknown."""
        unknown = 0
        with raw3.RawClient3(self._port) as client:
            for ledger, entries in self._entries.items():
                for entry in sorted(entries):
                    answer = client.read3(ledger, entry)
                    if answer.status in UNKNOWN:
                        unknown += 1
                        continue
                    assert answer.status == raw3.EOK, (ledger, entry, answer.status)
                    data = answer.without_status()[4]
                    assert payload_of(bytes(data)) == payload(ledger, entry)
                status, lac, _last = client.read_lac(ledger)
                if status in UNKNOWN:
                    unknown += 1
                    continue
                wanted = raw3.lac_packet(ledger, self._lacs[ledger])
                assert (status, lac) == (raw3.EOK, wanted), ledger
        assert unknown_ok or not unknown
        return unknown


def started(
    stack: ExitStack, tmp_path: Path, mode: str
) -> tuple[BlockDevice, HostedBookie, Promises3]:
    device = stack.enter_context(BlockDevice(tmp_path / "device"))
    bookie = HostedBookie(tmp_path)
    stack.callback(bookie.ensure_gone)
    bookie.init_on(mode, [device.path / "disk"])
    bookie.start_again()
    bookie.name_ledgers(LEDGERS)
    promises = Promises3(bookie)
    promises.load(range(20))
    return device, bookie, promises


@pytest.mark.parametrize(("mode", "what"), combinations(MODES, ["eio", "gone", "cut"]))
def test_a_device_fails(stack: ExitStack, tmp_path: Path, mode: str, what: str) -> None:
    """Under ``sync`` all of it is there: a force is a sync, and so is an explicit LAC."""
    device, bookie, promises = started(stack, tmp_path, mode)
    if what == "cut":
        bookie.lose_host()
        device.cut(3)
    else:
        device.eio() if what == "eio" else device.vanish()
        bookie.kill()
    device.come_back()
    bookie.start_again()
    assert bookie.classes() == {"host crash"}
    promises.kept(unknown_ok=mode == "write")


@pytest.mark.parametrize("kind", [ENTRY, LAC], ids=["entry", "LAC"])
def test_rot_and_a_power_cut(stack: ExitStack, tmp_path: Path, kind: int) -> None:
    device, bookie, promises = started(stack, tmp_path, "sync")
    bookie.lose_host()
    path, at = last_record(bookie.disks[0] / "entrylog", kind, LEDGERS[0])
    flip(path, at + ALL_PLACES["body"])
    write_back(device)
    device.cut(7)
    device.come_back()
    bookie.start_again()
    assert promises.kept(unknown_ok=True)


@pytest.mark.parametrize(("mode", "what"), combinations(MODES, ["disk", "index"]))
def test_an_older_copy(stack: ExitStack, tmp_path: Path, mode: str, what: str) -> None:
    device, bookie, promises = started(stack, tmp_path, mode)
    assert bookie.stop() == 0
    write_back(device)
    device.snapshot()
    copied(bookie.disks[0] / "index", tmp_path / "old")
    bookie.start_again()
    promises.load(range(20, 40))
    assert bookie.stop() == 0
    if what == "index":
        copied(tmp_path / "old", bookie.disks[0] / "index")
    else:
        device.restore()
        run_named_command(bookie, refused(bookie))
    bookie.start_again()
    unknown = promises.kept(unknown_ok=what == "disk")
    assert unknown or what == "index"
