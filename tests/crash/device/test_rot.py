"""Rot in what was synced last, and then a lost host: a flipped bit is no torn write, so it is a loss."""

from __future__ import annotations

import os
import shutil
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.device.host import HostedBookie, Promises
from tests.harness import raw3
from tests.harness.cluster import pretend_another_boot

LEDGER, OTHER = 1, 2
ENTRY, STATE, LAC = 1, 2, 8
"""Kinds of records in the log."""
HEADER_BYTES = 64
_RECORD = struct.Struct(">IIIBBH")
ALL_PLACES = {
    "checksum": 1,
    "length": 6,
    "segment": 11,
    "mark": 12,
    "kind": 13,
    "check": 15,
    "body": 20,
}
PLACES = ALL_PLACES if os.environ.get("CRASH_ROT") else dict(list(ALL_PLACES.items())[1::5])
"""Bytes of a record in which a bit rots. With ``CRASH_ROT`` all of them, else the length and the body."""
IDLE_S = 1.2
KNOWN_OR_NOT = (raw3.EOK, raw3.EIO, raw3.EUNKNOWN)


@pytest.fixture
def bookie(tmp_path: Path) -> Iterator[HostedBookie]:
    bookie = HostedBookie(tmp_path)
    yield bookie
    bookie.ensure_gone()


def records(path: Path) -> list[tuple[int, int, bytes]]:
    """Offset, kind and body of each record of a segment of the log or of the journal. The filler behind the last one is
    a pattern of each segment's own, and may have the byte that marks a record, but not the segment's number before it.
    """
    if path.suffix != ".log":
        return []
    data, at, found = path.read_bytes(), HEADER_BYTES, []
    while at + _RECORD.size <= len(data):
        _crc, length, segment, mark, kind, _check = _RECORD.unpack_from(data, at)
        if (segment, mark) != (int(path.stem), 0xB5):
            break
        found.append((at, kind, data[at + _RECORD.size : at + _RECORD.size + length]))
        at += _RECORD.size + length
    return found


def test_filler_that_looks_like_a_record_is_none(tmp_path: Path) -> None:
    segment = tmp_path / "0000000003.log"
    one = _RECORD.pack(0, 4, 3, 0xB5, ENTRY, 0) + b"body"
    segment.write_bytes(bytes(HEADER_BYTES) + one + bytes((0xB5, ENTRY)) * 512)
    assert records(segment) == [(HEADER_BYTES, ENTRY, b"body")]


def last_record(folder: Path, kind: int, ledger: int) -> tuple[Path, int]:
    """Where the last record of a kind about a ledger lies."""
    found = [
        (path, at)
        for path in sorted(folder.iterdir())
        for at, what, body in records(path)
        if what == kind and body[:8] == struct.pack(">q", ledger)
    ]
    assert found, f"no record of kind {kind} of ledger {ledger} in {folder}"
    return found[-1]


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes((byte ^ 4,)))


class Copy:
    """A bookie that was killed, its disks and its metadata, to be started again from."""

    def __init__(self, bookie: HostedBookie, tmp_path: Path) -> None:
        bookie.kill()
        pretend_another_boot(bookie.disks)
        self._bookie = bookie
        self._whole = [*bookie.disks, *filter(Path.exists, [bookie.root / "journal"])]
        self._whole.append(Path(bookie.metadata.removeprefix("sqlite:")))
        self._kept = tmp_path / "kept"
        self._kept.mkdir()
        for number, path in enumerate(self._whole):
            _copy(path, self._kept / str(number))

    def put_back(self) -> None:
        self._bookie.ensure_gone()
        for number, path in enumerate(self._whole):
            for old in (path, *path.parent.glob(f"{path.name}-*")):
                shutil.rmtree(old) if old.is_dir() else old.unlink(missing_ok=True)
            _copy(self._kept / str(number), path)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.sock"))
        return
    for path in (source, *source.parent.glob(f"{source.name}-*")):
        shutil.copy2(path, target.with_name(target.name + path.name.removeprefix(source.name)))


def loaded(bookie: HostedBookie, mode: str) -> Promises:
    bookie.init_on(mode, [bookie.root / "disk1"])
    bookie.start_again()
    bookie.name_ledgers([LEDGER, OTHER])
    promises = Promises(bookie)
    assert promises.add(LEDGER, range(50)) == 50
    assert promises.add(OTHER, range(50)) == 50
    return promises


def rot_everywhere(
    bookie: HostedBookie, copy: Copy, promises: Promises, folder: Path, kind: int, ledger: int
) -> None:
    for name, place in PLACES.items():
        copy.put_back()
        path, at = last_record(folder, kind, ledger)
        flip(path, at + place)
        bookie.start_again()
        found = promises.look()
        assert not found, (name, found, bookie.status()["disks"][0])
        assert bookie.classes() == {"host crash"}, name


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("mode", "what", "idle_s"),
    [
        ("sync", "fence", 0),
        ("sync", "fence", IDLE_S),
        ("sync", "entry", 0),
        ("sync", "entry", IDLE_S),
        ("write", "fence", IDLE_S),
        ("write", "entry", 0),
    ],
)
def test_rot_in_what_was_synced_last(
    bookie: HostedBookie, tmp_path: Path, mode: str, what: str, idle_s: float
) -> None:
    promises = loaded(bookie, mode)
    if what == "fence":
        promises.fence(LEDGER)
    else:
        assert promises.add(LEDGER, [50]) == 1
    time.sleep(idle_s)
    copy = Copy(bookie, tmp_path)
    kind = STATE if what == "fence" else ENTRY
    rot_everywhere(bookie, copy, promises, bookie.disks[0] / "entrylog", kind, LEDGER)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("what", ["fence", "entry"])
def test_rot_in_a_journal(bookie: HostedBookie, tmp_path: Path, what: str) -> None:
    """And in the log's copy of the same record, which the journal is there to bring back."""
    promises = loaded(bookie, "journal")
    if what == "fence":
        promises.fence(LEDGER)
    else:
        assert promises.add(LEDGER, [50]) == 1
    copy = Copy(bookie, tmp_path)
    kind = STATE if what == "fence" else ENTRY
    (journal,) = {path.parent for path in (bookie.root / "journal").rglob("*") if records(path)}
    for name, place in PLACES.items():
        copy.put_back()
        for folder in (journal, bookie.disks[0] / "entrylog"):
            path, at = last_record(folder, kind, LEDGER)
            flip(path, at + place)
        bookie.start_again()
        found = promises.look()
        assert not found, (name, found, bookie.status()["disks"][0])


@pytest.mark.timeout(180)
@pytest.mark.parametrize("idle_s", [0, IDLE_S], ids=["at once", "idle"])
def test_rot_in_what_version_3_made_durable(
    bookie: HostedBookie, tmp_path: Path, idle_s: float
) -> None:
    """A deferred entry that was forced, and an explicit LAC."""
    promises = loaded(bookie, "sync")
    with raw3.RawClient3(bookie.port) as client:
        assert isinstance(client, raw3.RawClient3)
        for entry in range(50, 60):
            assert client.add3(LEDGER, entry, b"deferred", deferred=True) == raw3.EOK
        assert client.force(LEDGER) == raw3.EOK
        assert client.write_lac(LEDGER, 55) == raw3.EOK
    time.sleep(idle_s)
    copy = Copy(bookie, tmp_path)
    for kind in (ENTRY, LAC):
        for name, place in PLACES.items():
            copy.put_back()
            path, at = last_record(bookie.disks[0] / "entrylog", kind, LEDGER)
            flip(path, at + place)
            bookie.start_again()
            promises.kept()
            with raw3.RawClient3(bookie.port) as client:
                assert isinstance(client, raw3.RawClient3)
                for entry in range(50, 60):
                    assert client.read3(LEDGER, entry).status in KNOWN_OR_NOT, (name, entry)
                status, lac, _last = client.read_lac(LEDGER)
            is_known = status == raw3.EOK and lac == raw3.lac_packet(LEDGER, 55)
            assert is_known or status != raw3.EOK, (name, status, lac)
