"""The RocksDB databases of Java's DbLedgerStorage, in each index directory: ``ledgers`` and ``locations``.

===========  ============================================  ====================================
``ledgers``    ledger i64 (more bytes may follow)            LedgerData, protobuf
``locations``  ledger i64 | entry i64                        log id << 32 | position, i64
===========  ============================================  ====================================

In ``ledgers`` the key -0xeefd has the flags of the storage: bit 0, an integrity check is due. rocksdict, an extra
(``bkbox[takeover]``), reads and writes them; what it writes has the table format that all versions of Java's bookie
since 4.9 read. Source: LedgerMetadataIndex.java, EntryLocationIndex.java, DbLedgerStorageDataFormats.proto.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from bkbox.base.text import error_text
from bkbox.base.values import frozen_struct
from bkbox.errors import BookieRunningError, DamagedError, DiskError, EncodingError, HostError
from bkbox.takeover.java_ledger import JavaLedger
from bkbox.wire.protobuf import Field, Kind, Label, Message, decode, encode

if TYPE_CHECKING:
    import rocksdict

LEDGERS = "ledgers"
LOCATIONS = "locations"
INSTALL = "pip install 'bkbox[takeover]'"

_ID = struct.Struct(">q")
_LOCATION_KEY = struct.Struct(">qq")
_FLAGS_KEY = -0xEEFD
_CHECK_DUE = 1
_BATCH_PUTS = 10_000
_TABLE_FORMAT = 5

_LEDGER_DATA = Message(
    "LedgerData",
    Field(1, "exists", Kind.BOOL, Label.REQUIRED),
    Field(2, "fenced", Kind.BOOL, Label.REQUIRED),
    Field(3, "masterKey", Kind.BYTES, Label.REQUIRED),
    Field(4, "explicitLac", Kind.BYTES),
    Field(5, "limbo", Kind.BOOL),
)


@frozen_struct
class LedgersIndex:
    """The contents of ``ledgers``. ``check_due``: the bookie has not finished its integrity check."""

    ledgers: dict[int, JavaLedger]
    check_due: bool = False


def is_installed() -> bool:
    """True if rocksdict is there."""
    try:
        _rocksdict()
    except HostError:
        return False
    return True


def _rocksdict() -> type[rocksdict.Rdict]:
    try:
        from rocksdict import Rdict
    except ImportError as error:
        raise HostError(
            f"the index of Java's DbLedgerStorage is a RocksDB database, and rocksdict is not installed ({error}): "
            f"{INSTALL}"
        ) from error
    return Rdict


def refuse_in_use(index_dir: Path) -> None:
    """Raises BookieRunningError if a process has the databases open, DiskError."""
    for name in (LEDGERS, LOCATIONS):
        path = index_dir / name / "LOCK"
        try:
            with open(path, "rb+") as file:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            continue
        except (BlockingIOError, PermissionError) as error:
            raise BookieRunningError(
                f"{path.parent} is in use: stop Java's bookie first ({error.strerror})"
            ) from error
        except OSError as error:
            raise DiskError(f"lock {path}: {error.strerror}") from error


def read_ledgers(index_dir: Path) -> LedgersIndex:
    """The states of all ledgers; an index directory without the database has none. The database is not changed.
    Raises DamagedError, HostError without rocksdict.
    """
    path = index_dir / LEDGERS
    if not (path / "CURRENT").exists():
        return LedgersIndex({})
    rdict = _rocksdict()
    found: dict[int, JavaLedger] = {}
    check_due = False
    try:
        from rocksdict import AccessType, Options

        access = AccessType.read_only(error_if_log_file_exist=False)
        with closing(rdict(str(path), Options(raw_mode=True), access_type=access)) as database:
            for key, value in database.items():
                assert isinstance(key, bytes)
                ledger = _ID.unpack_from(key)[0]
                if ledger == _FLAGS_KEY:
                    check_due = bool(_ID.unpack_from(value)[0] & _CHECK_DUE)
                elif ledger >= 0:
                    found[ledger] = decode_ledger_data(value)
    except Exception as error:  # rocksdict raises Exception itself
        raise DamagedError(f"{path} cannot be read: {error_text(error)}") from error
    return LedgersIndex(found, check_due)


def decode_ledger_data(data: bytes) -> JavaLedger:
    """Raises EncodingError."""
    values = decode(_LEDGER_DATA, data)
    if not values["exists"]:
        raise EncodingError("the record of a ledger that does not exist")
    lac = values.get("explicitLac")
    return JavaLedger(
        bytes(values["masterKey"]),
        bool(values["fenced"]),
        bytes(lac) if lac else None,
        bool(values.get("limbo")),
    )


def encode_ledger_data(ledger: JavaLedger) -> bytes:
    values = {"exists": True, "fenced": ledger.fenced, "masterKey": ledger.master_key}
    if ledger.explicit_lac is not None:
        values["explicitLac"] = ledger.explicit_lac
    if ledger.limbo:
        values["limbo"] = True
    return encode(_LEDGER_DATA, values)


def write_ledgers(index_dir: Path, ledgers: Iterable[tuple[int, JavaLedger]]) -> None:
    """Make the database ``ledgers``, in place of any. Raises HostError, DiskError."""
    _write(
        index_dir / LEDGERS,
        ((_ID.pack(ledger), encode_ledger_data(state)) for ledger, state in ledgers),
    )


def write_locations(index_dir: Path, locations: Iterable[tuple[int, int, int, int]]) -> None:
    """Make the database ``locations``, in place of any, of (ledger, entry, log id, position). The last location of an
    entry counts. Raises HostError, DiskError.
    """
    _write(index_dir / LOCATIONS, _location_items(locations))


def _location_items(
    locations: Iterable[tuple[int, int, int, int]],
) -> Iterator[tuple[bytes, bytes]]:
    for ledger, entry, log_id, position in locations:
        yield _LOCATION_KEY.pack(ledger, entry), _ID.pack(log_id << 32 | position)


def _write(path: Path, items: Iterable[tuple[bytes, bytes]]) -> None:
    rdict = _rocksdict()
    try:
        from rocksdict import BlockBasedOptions, DBCompressionType, Options, WriteBatch

        rdict.destroy(str(path))
        table = BlockBasedOptions()
        table.set_format_version(_TABLE_FORMAT)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_block_based_table_factory(table)
        options.set_compression_type(DBCompressionType.lz4())
        with closing(rdict(str(path), options)) as database:
            batch = WriteBatch(raw_mode=True)
            for key, value in items:
                batch.put(key, value)
                if batch.len() >= _BATCH_PUTS:
                    database.write(batch)
                    batch = WriteBatch(raw_mode=True)
            database.write(batch)
            database.flush()
        for name in ("LOG", "rocksdict-config.json"):
            (path / name).unlink(missing_ok=True)
        _sync_folder(path)
    except DiskError:
        raise
    except Exception as error:  # rocksdict raises Exception itself
        raise DiskError(f"{path} cannot be written: {error_text(error)}") from error


def _sync_folder(path: Path) -> None:
    for each in (*path.iterdir(), path, path.parent):
        fd = os.open(each, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
