"""Java's formats, by bytes that are written out here."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from bkbox.errors import DamagedError, EncodingError
from bkbox.storage.files import RealFiles
from bkbox.takeover import java_index_file, java_rocksdb
from bkbox.takeover.java_entry_log import EntryLogScan, EntryLogWriter, parse_log_file_name
from bkbox.takeover.java_journal import (
    EXPLICIT_LAC_ENTRY,
    FENCE_ENTRY,
    MASTER_KEY_ENTRY,
    JournalRecord,
    Mark,
    encode_mark,
    files_since,
    mark_name,
    read_mark,
    records,
    write_journal,
)
from bkbox.takeover.java_ledger import JavaLedger
from tests.takeover.javadisks import entry, lac

FILES = RealFiles()


def scanned(path: Path) -> tuple[list[tuple[int, int, int]], str]:
    with closing(FILES.open_read(path)) as file:
        scan = EntryLogScan(file, path)
        return [(each.position, each.ledger, each.entry) for each in scan], scan.damage


def made(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


# ---- entry logs ---------------------------------------------------------------------------------

BODY = (
    bytes.fromhex("0000000000000005 0000000000000003 0000000000000002 0000000000000004") + b"data"
)
WHOLE = (
    bytes.fromhex("424b4c4f 00000001 0000000000000428 00000001").ljust(1024, b"\0")
    + bytes.fromhex("00000024")
    + BODY
    + bytes.fromhex(
        "00000024 ffffffffffffffff fffffffffffffffe 00000001 0000000000000005 0000000000000028"
    )
)


def test_an_entry_log_is_written_as_java_does(tmp_path: Path) -> None:
    with closing(FILES.open_append(tmp_path / "1.log")) as file:
        writer = EntryLogWriter(file)
        assert writer.append(5, BODY) == 1028
        writer.end()
    assert (tmp_path / "1.log").read_bytes() == WHOLE


def test_an_entry_log_is_read(tmp_path: Path) -> None:
    assert scanned(made(tmp_path / "1.log", WHOLE)) == ([(1028, 5, 3)], "")


def test_a_direct_entry_log_has_a_longer_header_and_padding(tmp_path: Path) -> None:
    """4096 bytes, of which a record of ledger -1 covers those behind the first 1024; zeros to a full block."""
    header = WHOLE[:16].ljust(1024, b"\0") + (3068).to_bytes(4) + b"\xff" * 8
    header = (header[:8] + bytes(8)).ljust(1024, b"\0") + header[1024:]
    record = len(BODY).to_bytes(4) + BODY
    data = header.ljust(4096, b"\0") + record.ljust(4096, b"\0") + record
    found, damage = scanned(made(tmp_path / "1.log", data))
    assert found == [(4100, 5, 3), (8196, 5, 3)]
    assert damage == ""


@pytest.mark.parametrize("size", [0, 100, 1024, 1026, 1040, len(WHOLE) - 50])
def test_an_entry_log_that_was_being_written_ends_early(tmp_path: Path, size: int) -> None:
    unfinished = WHOLE[:8] + bytes(12) + WHOLE[20:]
    found, damage = scanned(made(tmp_path / "1.log", unfinished[:size]))
    assert found == []
    assert damage == ""


def test_a_ledgers_map_shows_what_is_missing(tmp_path: Path) -> None:
    more = WHOLE[:-8] + (100).to_bytes(8)
    assert scanned(made(tmp_path / "1.log", more))[1] == "ledger 5 has 40 of 100 bytes"
    cut = WHOLE[:-20]
    assert scanned(made(tmp_path / "2.log", cut))[1] == "its map names 0 of 1 ledger"


def test_entries_longer_than_a_read_are_whole(tmp_path: Path) -> None:
    bodies = [entry(1, number, size) for number, size in enumerate((10, 5 << 20, 3, 4 << 20, 1))]
    path = tmp_path / "a.log"
    with closing(FILES.open_append(path)) as file:
        writer = EntryLogWriter(file)
        for body in bodies:
            writer.append(1, body)
        writer.end()
    with closing(FILES.open_read(path)) as file:
        scan = EntryLogScan(file, path)
        assert [each.body for each in scan] == bodies
        assert scan.damage == ""


def test_names_of_entry_logs() -> None:
    names = {"1f.log": 31, "0.log": 0, "1f.log.compacting": None, "1.2.compacted": None}
    assert {name: parse_log_file_name(name) for name in names} == names


# ---- the journal --------------------------------------------------------------------------------

JOURNAL = (
    bytes.fromhex("424b4c47 00000006").ljust(512, b"\0")
    + bytes.fromhex("00000018 0000000000000005 fffffffffffff000 00000004 6b6b6b6b")
    + bytes.fromhex("00000024")
    + BODY
    + bytes.fromhex("ffffff00 00000003 000000")  # padding
    + bytes.fromhex("00000010 0000000000000005 ffffffffffffe000")
    + bytes.fromhex("00000017 0000000000000005 ffffffffffff8000 00000003 6c6163")
)
RECORDS = [
    JournalRecord(5, MASTER_KEY_ENTRY, b"kkkk"),
    JournalRecord(5, 3, BODY),
    JournalRecord(5, FENCE_ENTRY, b""),
    JournalRecord(5, EXPLICIT_LAC_ENTRY, b"lac"),
]


def replayed(path: Path, start: int = 0) -> list[JournalRecord]:
    with closing(FILES.open_read(path)) as file:
        return list(records(file, path, start))


def test_a_journal_is_read(tmp_path: Path) -> None:
    assert replayed(made(tmp_path / "1.txn", JOURNAL)) == RECORDS
    assert replayed(made(tmp_path / "2.txn", JOURNAL + bytes(600) + JOURNAL[512:])) == RECORDS
    assert replayed(tmp_path / "1.txn", 540) == RECORDS[1:]


@pytest.mark.parametrize("cut", range(1, 27))
def test_a_journal_ends_with_the_write_that_was_interrupted(tmp_path: Path, cut: int) -> None:
    assert replayed(made(tmp_path / "1.txn", JOURNAL[:-cut])) == RECORDS[:-1]


def test_older_journals_have_other_headers(tmp_path: Path) -> None:
    fourth = bytes.fromhex("424b4c47 00000004") + JOURNAL[512:580]
    assert replayed(made(tmp_path / "1.txn", fourth)) == RECORDS[:2]
    assert replayed(made(tmp_path / "2.txn", JOURNAL[512:580])) == RECORDS[:2]


@pytest.mark.parametrize(
    "data",
    [
        bytes.fromhex("424b4c47 00000007"),
        JOURNAL[:512] + bytes.fromhex("fffffffe"),
        JOURNAL[:512] + bytes.fromhex("00000004 00000000"),
        JOURNAL[:512]
        + bytes.fromhex("00000018 0000000000000005 fffffffffffff000 00000005 6b6b6b6b"),
    ],
    ids=["version", "length", "short", "value"],
)
def test_a_broken_journal_is_an_error(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(DamagedError):
        replayed(made(tmp_path / "1.txn", data))


def test_a_written_journal_is_read_again(tmp_path: Path) -> None:
    with closing(FILES.open_append(tmp_path / "1.txn")) as file:
        write_journal(file, RECORDS)
    assert replayed(tmp_path / "1.txn") == RECORDS


def test_the_greatest_mark_counts(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    assert read_mark(FILES, [one, two], "lastMark") == Mark()
    made(one / "lastMark", bytes.fromhex("0000000000000010 0000000000000200"))
    made(two / "lastMark", encode_mark(Mark(0x11, 0)))
    assert read_mark(FILES, [one, two], "lastMark") == Mark(0x11, 0)
    assert (mark_name(0, 1), mark_name(1, 2)) == ("lastMark", "lastMark.1")
    for name in ("10.txn", "11.txn", "12.txn", "other"):
        made(one / name, b"")
    assert files_since(FILES, one, Mark(0x11, 700)) == [(one / "11.txn", 700), (one / "12.txn", 0)]
    made(one / "lastMark", b"short")
    with pytest.raises(DamagedError):
        read_mark(FILES, [one], "lastMark")
    with pytest.raises(DamagedError, match=r"13\.txn is missing"):
        files_since(FILES, one, Mark(0x13, 0))


# ---- ledger indexes -----------------------------------------------------------------------------

INDEX = bytes.fromhex("424b4c45 00000001 00000004 6b6b6b6b 00000001 00000010") + lac(5, 1)[:16]


def test_an_index_file_is_read_and_written() -> None:
    state = JavaLedger(b"kkkk", fenced=True, explicit_lac=lac(5, 1)[:16])
    path = Path("5.idx")
    assert java_index_file.decode_header(INDEX.ljust(1024, b"\0"), path) == state
    assert java_index_file.encode_header(state) == INDEX.ljust(1024, b"\0")
    older = INDEX[:4] + bytes(4) + INDEX[8:20]
    assert java_index_file.decode_header(older, path) == JavaLedger(b"kkkk", fenced=True)
    assert java_index_file.decode_header(bytes(1024), path) is None
    for broken in (b"BKLX" + INDEX[4:], INDEX[:4] + b"\0\0\0\2" + INDEX[8:], INDEX[:30]):
        with pytest.raises(DamagedError):
            java_index_file.decode_header(broken, path)


def test_where_index_files_are(tmp_path: Path) -> None:
    path = java_index_file.index_file_path(tmp_path, 0x12A0B)
    assert path == tmp_path / "2a" / "b" / "12a0b.idx"
    path.parent.mkdir(parents=True)
    path.touch()
    (tmp_path / "locations").mkdir()
    assert list(java_index_file.index_files(FILES, tmp_path)) == [(0x12A0B, path)]


def test_ledger_data() -> None:
    state = JavaLedger(b"kk", fenced=True, explicit_lac=b"lac", limbo=True)
    data = bytes.fromhex("0801 1001 1a026b6b 22036c6163 2801")
    assert java_rocksdb.encode_ledger_data(state) == data
    assert java_rocksdb.decode_ledger_data(data) == state
    plain = bytes.fromhex("0801 1000 1a00")
    assert java_rocksdb.decode_ledger_data(plain) == JavaLedger()
    assert java_rocksdb.decode_ledger_data(plain).known_key is None
    with pytest.raises(EncodingError):
        java_rocksdb.decode_ledger_data(bytes.fromhex("0800 1000 1a00"))


def test_a_database_that_is_damaged_or_in_use(tmp_path: Path) -> None:
    pytest.importorskip("rocksdict")
    assert java_rocksdb.read_ledgers(tmp_path).ledgers == {}
    java_rocksdb.write_ledgers(tmp_path, [(5, JavaLedger(b"kk"))])
    assert java_rocksdb.read_ledgers(tmp_path).ledgers == {5: JavaLedger(b"kk")}
    java_rocksdb.refuse_in_use(tmp_path)
    (tmp_path / "ledgers" / "CURRENT").write_text("MANIFEST-999999\n")
    with pytest.raises(DamagedError, match="cannot be read"):
        java_rocksdb.read_ledgers(tmp_path)
