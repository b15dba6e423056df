"""Small nodes of re-replication, most of them protobuf as text.

The three check times are binary, the recovery delay is plain decimal. Source: DataFormats.proto,
ZkLedgerUnderreplicationManager.java, ZkLedgerAuditorManager.java.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from bkbox.base.text import quoted
from bkbox.errors import EncodingError
from bkbox.wire import protobuf
from bkbox.wire.metadata import text_format
from bkbox.wire.metadata.text_format import text_of
from bkbox.wire.protobuf import Field, Kind, Label, Message

_LEDGER = Message(
    "UnderreplicatedLedgerFormat",
    Field(1, "replica", Kind.STRING, Label.REPEATED),
    Field(2, "ctime", Kind.INT64),
    keeps_unknown=True,
)
_LAYOUT = Message(
    "LedgerRereplicationLayoutFormat",
    Field(1, "type", Kind.STRING, Label.REQUIRED),
    Field(2, "version", Kind.INT32, Label.REQUIRED),
)
_HOLDER = Message("LockDataFormat", Field(1, "bookieId", Kind.STRING))
_CHECK_TIME = Message("CheckAllLedgersFormat", Field(1, "ctime", Kind.INT64))


@dataclass(frozen=True, slots=True)
class UnderreplicatedLedger:
    """The mark of a ledger with missing replicas; ``ctime_ms`` is None if no time was stored.

    ``unknown``: fields that a newer BookKeeper wrote; a change of the mark keeps them.
    """

    replicas: tuple[str, ...]
    ctime_ms: int | None = None
    unknown: bytes = b""

    def marked_again(self, replicas: Iterable[str], ctime_ms: int | None) -> UnderreplicatedLedger:
        """The mark with these replicas too, and this time; itself if it has all of them."""
        new = tuple(name for name in dict.fromkeys(replicas) if name not in self.replicas)
        return replace(self, replicas=self.replicas + new, ctime_ms=ctime_ms) if new else self


@dataclass(frozen=True, slots=True)
class RereplicationLayout:
    """Content of the LAYOUT node below ``underreplication``."""

    type: str = "BASIC"
    version: int = 1


def encode_ledger(ledger: UnderreplicatedLedger) -> bytes:
    """Payload of ``urL…``; it may be empty."""
    return text_format.encode(
        _LEDGER,
        {"replica": ledger.replicas, "ctime": ledger.ctime_ms, protobuf.UNKNOWN: ledger.unknown},
    ).encode()


def decode_ledger(data: bytes) -> UnderreplicatedLedger:
    """Raises EncodingError."""
    values = text_format.decode(_LEDGER, text_of(data))
    unknown = values.get(protobuf.UNKNOWN, b"")
    return UnderreplicatedLedger(tuple(values["replica"]), values.get("ctime"), unknown)


def encode_layout(layout: RereplicationLayout) -> bytes:
    """Payload of ``underreplication/LAYOUT``."""
    return text_format.encode(_LAYOUT, {"type": layout.type, "version": layout.version}).encode()


def decode_layout(data: bytes) -> RereplicationLayout:
    """Raises EncodingError."""
    values = text_format.decode(_LAYOUT, text_of(data))
    return RereplicationLayout(values["type"], values["version"])


def encode_holder(name: str | None) -> bytes:
    """Payload of a lock (host name of the worker, None if it has none) or of a vote (bookie id)."""
    return text_format.encode(_HOLDER, {"bookieId": name}).encode()


def decode_holder(data: bytes) -> str | None:
    """Raises EncodingError."""
    name: str | None = text_format.decode(_HOLDER, text_of(data)).get("bookieId")
    return name


def encode_check_time(time_ms: int) -> bytes:
    """Payload of ``checkallledgersctime`` and its two siblings: milliseconds since 1970."""
    return protobuf.encode(_CHECK_TIME, {"ctime": time_ms})


def decode_check_time(data: bytes) -> int | None:
    """Milliseconds since 1970, or None if no time is stored. Raises EncodingError."""
    time_ms: int | None = protobuf.decode(_CHECK_TIME, data).get("ctime")
    return time_ms


def encode_recovery_delay(seconds: int) -> bytes:
    """Payload of ``lostBookieRecoveryDelay``."""
    return b"%d" % seconds


def decode_recovery_delay(data: bytes) -> int:
    """Seconds. Raises EncodingError."""
    if not re.fullmatch(rb"[+-]?[0-9]{1,9}", data):
        raise EncodingError(f"lostBookieRecoveryDelay is no number: {quoted(data[:20])}")
    return int(data)
