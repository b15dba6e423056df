"""The per-ledger record of a Java bookie's DbLedgerStorage; read and written for migration and comparison.

Source: DbLedgerStorageDataFormats.proto (LedgerData).
"""

from __future__ import annotations

from dataclasses import dataclass

from bkbox.wire import protobuf
from bkbox.wire.protobuf import Field, Kind, Label, Message

_FORMAT = Message(
    "LedgerData",
    Field(1, "exists", Kind.BOOL, Label.REQUIRED),
    Field(2, "fenced", Kind.BOOL, Label.REQUIRED),
    Field(3, "masterKey", Kind.BYTES, Label.REQUIRED),
    Field(4, "explicitLac", Kind.BYTES),
    Field(5, "limbo", Kind.BOOL),
)


@dataclass(frozen=True, slots=True)
class LocalLedger:
    """One ledger as a bookie knows it; an empty master key means that it is not known yet."""

    exists: bool
    fenced: bool
    master_key: bytes
    explicit_lac: bytes | None = None
    limbo: bool | None = None


def encode(ledger: LocalLedger) -> bytes:
    """The bytes of an index value."""
    return protobuf.encode(
        _FORMAT,
        {
            "exists": ledger.exists,
            "fenced": ledger.fenced,
            "masterKey": ledger.master_key,
            "explicitLac": ledger.explicit_lac,
            "limbo": ledger.limbo,
        },
    )


def decode(data: bytes) -> LocalLedger:
    """Raises EncodingError."""
    values = protobuf.decode(_FORMAT, data)
    return LocalLedger(
        values["exists"],
        values["fenced"],
        values["masterKey"],
        values.get("explicitLac"),
        values.get("limbo"),
    )
