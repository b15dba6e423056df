"""Disks from other versions: those of older ones are opened with all they hold, those of newer ones are refused and
left as they are."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from bkbox.native.checksum import crc32c
from bkbox.storage.checksummed_document import FORMATS
from bkbox.storage.log.segment import FORMAT, SEGMENT_HEADER
from tests.e2e.olddisks import BOOKIE_ID, FOLDER, unpacked
from tests.harness.cluster import NOBODY, create_ledgers, ledger_of
from tests.harness.processes import BookieProcess, bkbox
from tests.harness.raw import EFENCED, EOK, RawClient, payload_of
from tests.harness.two_ledgers import ENTRIES, FENCED_LEDGER, assert_entries

NEW_LEDGER = 3
ARCHIVES = sorted(FOLDER.glob("*.tar.xz"))


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def bookie(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BookieProcess]:
    bookie = unpacked(request.param, tmp_path)
    yield bookie
    bookie.ensure_gone()


def test_a_disk_of_an_older_version_has_all_it_had(bookie: BookieProcess) -> None:
    bkbox("cookie", "repair", "--yes", "--config", str(bookie.config))  # they are elsewhere now
    bookie.start()
    create_ledgers(bookie.metadata, [ledger_of(NEW_LEDGER, [BOOKIE_ID, NOBODY])])
    with RawClient(bookie.port) as client:
        assert_entries(client)
        assert client.add(FENCED_LEDGER, ENTRIES, b"late") == EFENCED
        assert client.add(NEW_LEDGER, 0, b"next") == EOK
        assert payload_of(client.read(NEW_LEDGER, 0).body) == b"next"
    assert bookie.stop() == 0


def newer_document(path: Path) -> None:
    line = path.read_bytes().partition(b"\n")[0]
    fields = json.loads(line)
    fields["format"] += 1
    line = json.dumps(fields).encode() + b"\n"
    path.write_bytes(line + b"%08x\n" % crc32c(line))


def newer_segment(path: Path) -> None:
    data = bytearray(path.read_bytes())
    magic, version, *others = SEGMENT_HEADER.unpack(data[: SEGMENT_HEADER.size])
    header = SEGMENT_HEADER.pack(magic, version + 1, *others)
    data[: SEGMENT_HEADER.size + 4] = header + struct.pack(">I", crc32c(header))
    path.write_bytes(data)


def contents(root: Path) -> dict[str, str]:
    """A hash of each file below a folder."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("*")
        if path.is_file() and path.name not in {"LOCK", "admin.sock"}
    }


@pytest.mark.parametrize("what", ["entrylog/*.log", "DIRTY", "CHECKPOINT", "../journal/*/*.log"])
def test_a_disk_of_a_newer_version_is_refused_and_left_as_it_is(tmp_path: Path, what: str) -> None:
    [archive] = FOLDER.glob("*-journal-killed.tar.xz")
    bookie = unpacked(archive, tmp_path)
    bkbox("cookie", "repair", "--yes", "--config", str(bookie.config))
    path = next(each.resolve() for each in bookie.disks[0].glob(what))
    if path.suffix == ".log":
        newer_segment(path)
        read = f"format {FORMAT + 1}, this version reads up to {FORMAT}"
    else:
        newer_document(path)
        read = f"format {FORMATS[path.name] + 1}, this version reads up to {FORMATS[path.name]}"
    found = contents(bookie.root)
    done = bkbox("run", "--config", str(bookie.config), check=False)
    assert done.returncode != 0
    assert f"{path}: {read}" in done.stderr
    assert contents(bookie.root) == found
