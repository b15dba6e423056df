"""Ledger metadata in its stored form, versions 1, 2 and 3.

All begin with ``BookieMetadataFormatVersion``, a tab, the version and a newline. Then:

1  lines of text: write quorum, ensemble size, length; per ensemble its first entry and the
   bookies, tab-separated; at the end ``-102 CLOSED`` if in recovery, ``<last entry> CLOSED`` if
   closed. Holds no ack quorum, password, digest or times.
2  LedgerMetadataFormat as text, without the creator token
3  a varint with the length, then LedgerMetadataFormat in binary: written for new ledgers

An update keeps the version that a ledger was created with, and the additions of a newer BookKeeper: unknown fields
are written back where they were, behind the known ones of the ledger, of a fragment or of a pair of custom metadata.
An unknown state, digest type or version is an error: no operation on such a ledger is sure to be right. Source:
LedgerMetadataSerDe.java, DataFormats.proto.
"""

from __future__ import annotations

import re
from itertools import pairwise

from bkbox.base.ids import NO_ENTRY, BookieId, EntryId, LedgerId, bookie_id
from bkbox.base.text import counted, quoted
from bkbox.errors import EncodingError, InvalidIdError
from bkbox.wire import protobuf
from bkbox.wire.metadata import text_format
from bkbox.wire.metadata.ledger import DigestType, Fragment, LedgerMetadata, LedgerState
from bkbox.wire.protobuf import UNKNOWN, Field, Kind, Label, Message, Values

_KEY = b"BookieMetadataFormatVersion\t"
_VERSION_LINE = re.compile(rb"([+-]?[0-9]{1,9})\n")
_V1_IN_RECOVERY = -102
_V1_CLOSED = "CLOSED"

_SEGMENT = Message(
    "LedgerMetadataFormat.Segment",
    Field(1, "ensembleMember", Kind.STRING, Label.REPEATED),
    Field(2, "firstEntryId", Kind.INT64, Label.REQUIRED),
    keeps_unknown=True,
)
_CUSTOM = Message(
    "LedgerMetadataFormat.cMetadataMapEntry",
    Field(1, "key", Kind.STRING),
    Field(2, "value", Kind.BYTES),
    keeps_unknown=True,
)
_FORMAT = Message(
    "LedgerMetadataFormat",
    Field(1, "quorumSize", Kind.INT32, Label.REQUIRED),
    Field(2, "ensembleSize", Kind.INT32, Label.REQUIRED),
    Field(3, "length", Kind.INT64, Label.REQUIRED),
    Field(4, "lastEntryId", Kind.INT64),
    Field(5, "state", Kind.ENUM, Label.REQUIRED, enum=LedgerState, strict=True),
    Field(6, "segment", Kind.MESSAGE, Label.REPEATED, message=_SEGMENT),
    Field(7, "digestType", Kind.ENUM, enum=DigestType, strict=True),
    Field(8, "password", Kind.BYTES),
    Field(9, "ackQuorumSize", Kind.INT32),
    Field(10, "ctime", Kind.INT64),
    Field(11, "customMetadata", Kind.MESSAGE, Label.REPEATED, message=_CUSTOM),
    Field(12, "cToken", Kind.INT64),
    keeps_unknown=True,
)


# ---- writing ----------------------------------------------------------------------------------


def encode(metadata: LedgerMetadata) -> bytes:
    """The stored bytes, in the ledger's own format version.

    Raises EncodingError: an unknown version, or a ledger without password in version 2 or 3
    (which no reader in the field could use, since it would not know the digest type).
    """
    version = metadata.format_version
    header = _KEY + b"%d\n" % version
    if version == 1:
        return header + _v1_text(metadata).encode()
    if version not in (2, 3):
        raise EncodingError(f"ledger metadata version {version} cannot be written")
    values = _values(metadata)
    if version == 2:
        return header + text_format.encode(_FORMAT, values).encode()
    values["cToken"] = metadata.creator_token
    message = protobuf.encode(_FORMAT, values)
    return header + protobuf.encode_varint(len(message)) + message


def _values(metadata: LedgerMetadata) -> Values:
    if metadata.password is None or metadata.digest_type is None:
        raise EncodingError(
            f"ledger {metadata.ledger_id} has no password and digest type: "
            f"version {metadata.format_version} cannot hold that"
        )
    last_entry, length = _end(metadata)
    custom_unknown = dict(metadata.custom_unknown)
    return {
        "quorumSize": metadata.write_quorum,
        "ensembleSize": metadata.ensemble_size,
        "length": length,
        "lastEntryId": last_entry,
        "state": metadata.state,
        "segment": [
            {
                "ensembleMember": list(fragment.ensemble),
                "firstEntryId": fragment.first_entry,
                UNKNOWN: fragment.unknown,
            }
            for fragment in metadata.fragments
        ],
        "digestType": metadata.digest_type,
        "password": metadata.password,
        "ackQuorumSize": metadata.ack_quorum,
        "ctime": metadata.ctime_ms if metadata.store_ctime else None,
        "customMetadata": [
            {"key": key, "value": value, UNKNOWN: custom_unknown.get(key, b"")}
            for key, value in metadata.custom
        ],
        UNKNOWN: metadata.unknown,
    }


def _end(metadata: LedgerMetadata) -> tuple[int, int]:
    """(last entry, length) in the stored form: both are meaningful only for a closed ledger."""
    if metadata.state is LedgerState.CLOSED:
        return metadata.last_entry, metadata.length
    return NO_ENTRY, 0


def _v1_text(metadata: LedgerMetadata) -> str:
    last_entry, length = _end(metadata)
    lines = [str(metadata.write_quorum), str(metadata.ensemble_size), str(length)]
    lines += ["\t".join((str(f.first_entry), *f.ensemble)) for f in metadata.fragments]
    if metadata.state is LedgerState.OPEN:
        lines.append("")
    else:
        closed = metadata.state is LedgerState.CLOSED
        lines.append(f"{last_entry if closed else _V1_IN_RECOVERY}\t{_V1_CLOSED}")
    return "\n".join(lines)


# ---- reading ----------------------------------------------------------------------------------


def decode(ledger_id: LedgerId, data: bytes, ctime_ms: int = -1) -> LedgerMetadata:
    """The metadata in stored bytes; ``ctime_ms`` is used if no creation time is stored.

    Raises EncodingError.
    """
    match = _VERSION_LINE.match(data, len(_KEY))
    if not data.startswith(_KEY) or match is None:
        raise EncodingError(f"ledger {ledger_id}: the header of the metadata is damaged")
    version = int(match[1])
    body = data[match.end() :]
    if version == 1:
        return _checked(_decode_v1(ledger_id, text_format.text_of(body)))
    if version == 2:
        values = text_format.decode(_FORMAT, text_format.text_of(body))
    elif version == 3:
        size, at = protobuf.decode_varint(memoryview(body), 0, len(body))
        if not 0 < size <= len(body) - at:
            raise EncodingError(f"ledger {ledger_id}: metadata of {size} bytes is not whole")
        values = protobuf.decode(_FORMAT, body[at : at + size])
    else:
        raise EncodingError(
            f"ledger {ledger_id}: its metadata has format version {version}, and versions 1, 2 and "
            "3 can be read: a newer BookKeeper wrote it, or it is damaged; upgrade, or use the "
            "version that wrote it"
        )
    return _checked(_from_values(ledger_id, version, values, ctime_ms))


def _from_values(
    ledger_id: LedgerId, version: int, values: Values, ctime_ms: int
) -> LedgerMetadata:
    closed = values["state"] is LedgerState.CLOSED
    ack_quorum: int | None = values.get("ackQuorumSize")
    password: bytes | None = values.get("password")
    stored_ctime: int | None = values.get("ctime")
    pairs = {pair.get("key", ""): pair for pair in values["customMetadata"]}
    return LedgerMetadata(
        ledger_id=ledger_id,
        ensemble_size=values["ensembleSize"],
        write_quorum=values["quorumSize"],
        ack_quorum=values["quorumSize"] if ack_quorum is None else ack_quorum,
        state=values["state"],
        fragments=tuple(
            Fragment(
                EntryId(segment["firstEntryId"]),
                _bookies(segment["ensembleMember"]),
                segment.get(UNKNOWN, b""),
            )
            for segment in values["segment"]
        ),
        last_entry=EntryId(values.get("lastEntryId", 0)) if closed else NO_ENTRY,
        length=values["length"] if closed else 0,
        digest_type=(None if password is None else values.get("digestType", DigestType.CRC32)),
        password=password,
        custom=tuple((key, pair.get("value", b"")) for key, pair in pairs.items()),
        ctime_ms=ctime_ms if stored_ctime is None else stored_ctime,
        store_ctime=stored_ctime is not None,
        format_version=version,
        creator_token=values.get("cToken", 0),
        unknown=values.get(UNKNOWN, b""),
        custom_unknown=tuple(
            (key, pair[UNKNOWN]) for key, pair in pairs.items() if UNKNOWN in pair
        ),
    )


def _decode_v1(ledger_id: LedgerId, text: str) -> LedgerMetadata:
    lines = text_format.lines_of(text)
    if len(lines) < 3:
        raise EncodingError(f"ledger {ledger_id}: metadata of version 1 is not whole")
    write_quorum, ensemble_size, length = map(_number, lines[:3])
    state = LedgerState.OPEN
    last_entry = int(NO_ENTRY)
    fragments = []
    for line in lines[3:]:
        first, *fields = line.split("\t")
        if fields[:1] == [_V1_CLOSED]:
            last_entry = _number(first)
            state = LedgerState.CLOSED
            if last_entry == _V1_IN_RECOVERY:
                state, last_entry = LedgerState.IN_RECOVERY, NO_ENTRY
            break
        fragments.append(Fragment(EntryId(_number(first)), _bookies(fields)))
    return LedgerMetadata(
        ledger_id=ledger_id,
        ensemble_size=ensemble_size,
        write_quorum=write_quorum,
        ack_quorum=write_quorum,
        state=state,
        fragments=tuple(fragments),
        last_entry=EntryId(last_entry),
        length=length if state is LedgerState.CLOSED else 0,
        digest_type=None,
        password=None,
        format_version=1,
    )


def _number(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text):
        raise EncodingError(f"{quoted(text)} is no number")
    return int(text)


def _bookies(names: list[str]) -> tuple[BookieId, ...]:
    try:
        return tuple(map(bookie_id, names))
    except InvalidIdError as error:
        raise EncodingError(str(error)) from None


def _checked(metadata: LedgerMetadata) -> LedgerMetadata:
    """Checks the invariants of every ledger, on which later code relies."""
    where = f"ledger {metadata.ledger_id}"
    sizes = (metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
    if not sizes[0] >= sizes[1] >= sizes[2] >= 1:
        raise EncodingError(
            f"{where}: ensemble size {sizes[0]}, write quorum {sizes[1]} and "
            f"ack quorum {sizes[2]} do not fit"
        )
    if not metadata.fragments:
        raise EncodingError(f"{where} has no ensemble")
    for fragment in metadata.fragments:
        if len(fragment.ensemble) != metadata.ensemble_size:
            raise EncodingError(
                f"{where}: the ensemble from entry {fragment.first_entry} on has "
                f"{counted(len(fragment.ensemble), 'bookie')}, not {metadata.ensemble_size}"
            )
    starts = [fragment.first_entry for fragment in metadata.fragments]
    if starts[0] < 0 or metadata.last_entry < NO_ENTRY or metadata.length < 0:
        raise EncodingError(
            f"{where} begins at entry {starts[0]}, ends at {metadata.last_entry} and has {metadata.length} bytes: "
            "none of them can be negative"
        )
    if any(after <= before for before, after in pairwise(starts)):
        raise EncodingError(f"{where}: the ensembles are not in ascending order")
    return metadata
