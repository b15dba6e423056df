"""A small protobuf codec: messages are described by tables, values are dicts by field name. It is proto2; in messages
of proto3 an absent field stands for zero.

Written in the order of the table (by field number, as protobuf-java does), required fields always, zeros too. Read in
any order; the last of several values of a single field counts. An int64 of -1 has ten bytes. A value is an int
(enums: a member), bool, str, bytes, memoryview (VIEW), a dict (messages), or a list of those (repeated).

Unknown fields are skipped, or kept if the message asks for it: then they are one value more, under UNKNOWN, and
written behind the known fields unchanged. A known field of another wire type counts as unknown, and so does an enum
value without a name, unless the field is strict: then it is an error. Groups, which nothing in BookKeeper uses, are
refused.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import Enum, IntEnum
from typing import Any

from bkbox.errors import EncodingError

Values = dict[str, Any]

UNKNOWN = "(unknown fields)"
"""Key of the unknown fields in the values of a message that keeps them: the bytes, unchanged."""

_U64 = (1 << 64) - 1
_I64_MAX = (1 << 63) - 1


class Kind(Enum):
    """Type of a field's values."""

    INT32 = "int32"
    INT64 = "int64"
    UINT32 = "uint32"
    UINT64 = "uint64"
    FIXED32 = "fixed32"
    FIXED64 = "fixed64"
    BOOL = "bool"
    ENUM = "enum"
    STRING = "string"
    BYTES = "bytes"
    VIEW = "bytes, left in place when read"
    MESSAGE = "message"


class Label(Enum):
    """Cardinality of a field."""

    REQUIRED = "required"
    OPTIONAL = "optional"
    REPEATED = "repeated"


_WIRE_TYPES = {
    Kind.FIXED64: 1,
    Kind.STRING: 2,
    Kind.BYTES: 2,
    Kind.VIEW: 2,
    Kind.MESSAGE: 2,
    Kind.FIXED32: 5,
}
"""By kind, where it is not 0."""


class Field:
    """One field; ``enum`` or ``message`` is its type if the kind is ENUM or MESSAGE.

    ``strict``: an enum value without a name is an error, not an unknown field. ``key`` and ``tag`` precede each
    value: number and wire type, as an int and as its varint; ``members`` are those of the enum by number.
    ``of_number`` or ``of_part`` converts what was read, a number of 64 bits or a view, to a value; None is no value.
    """

    __slots__ = (
        *("enum", "key", "kind", "label", "members", "message", "name", "number"),
        *("of_number", "of_part", "repeated", "strict", "tag"),
    )

    def __init__(
        self,
        number: int,
        name: str,
        kind: Kind,
        label: Label = Label.OPTIONAL,
        enum: type[IntEnum] | None = None,
        message: Message | None = None,
        strict: bool = False,
    ) -> None:
        self.number, self.name, self.kind, self.label = number, name, kind, label
        self.enum, self.message, self.strict = enum, message, strict
        members: dict[int, IntEnum] = {} if enum is None else {each.value: each for each in enum}
        self.members = members
        self.key = number << 3 | _WIRE_TYPES.get(kind, 0)
        self.tag = encode_varint(self.key)
        self.of_number: Callable[[int], int | None] = _of_number(self)
        self.of_part: Callable[[memoryview], Any] = _of_part(self)
        self.repeated = label is Label.REPEATED


class Message:
    """A message type: its name, for error texts, and its fields in ascending order. A message with more than
    ``fields_max`` fields, each occurrence counted, is refused: an unauthenticated peer may send millions of them.
    """

    __slots__ = (
        "by_key",
        "by_name",
        "fields",
        "fields_max",
        "keeps_unknown",
        "name",
        "repeated",
        "required",
    )

    def __init__(
        self,
        name: str,
        *fields: Field,
        keeps_unknown: bool = False,
        fields_max: int = sys.maxsize,
    ) -> None:
        self.name = name
        self.fields = fields
        self.fields_max = fields_max
        self.keeps_unknown = keeps_unknown
        self.by_key = {field.key: field for field in fields}
        self.by_name = {field.name: field for field in fields}
        self.repeated = [field.name for field in fields if field.label is Label.REPEATED]
        self.required = [field.name for field in fields if field.label is Label.REQUIRED]


def check_required(message: Message, values: Values) -> None:
    """Raise EncodingError if a required field has no value."""
    for name in message.required:
        if values.get(name) is None:
            raise EncodingError(f"{message.name} without the required field {name}")


# ---- writing ------------------------------------------------------------------------------------


def encode_varint(value: int) -> bytes:
    """A varint; negative numbers as 64-bit two's complement."""
    if 0 <= value < 0x80:
        return _ONE_BYTE[value]
    value &= _U64
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_ONE_BYTE = [bytes((value,)) for value in range(0x80)]


def encode(message: Message, values: Values) -> bytes:
    """The bytes of a message. Fields that are None or absent are left out. Raises EncodingError."""
    out: list[bytes] = []
    _encode(message, values, out)
    return b"".join(out)


def _encode(message: Message, values: Values, out: list[bytes]) -> int:
    """Add the bytes of a message to ``out``; returns their number."""
    check_required(message, values)
    size = 0
    for field in message.fields:
        value = values.get(field.name)
        if value is None:
            continue
        for item in value if field.repeated else (value,):
            if field.key & 7 == 0:
                head = field.tag + encode_varint(item)
                out.append(head)
                size += len(head)
                continue
            if field.key & 7 in _FIXED:
                head = field.tag + item.to_bytes(_FIXED[field.key & 7], "little")
                out.append(head)
                size += len(head)
                continue
            place = len(out)
            out.append(b"")
            if field.message is not None:
                length = _encode(field.message, item, out)
            else:
                data = item.encode() if isinstance(item, str) else item
                out.append(data)
                length = len(data)
            out[place] = head = field.tag + encode_varint(length)
            size += len(head) + length
    unknown = values.get(UNKNOWN, b"")
    out.append(unknown)
    return size + len(unknown)


# ---- reading ------------------------------------------------------------------------------------


def decode_varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """(value in 0..2**64-1, offset behind it) of the varint in data[at:end]. Raises EncodingError."""
    value = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        if byte < 0x80:
            return (value | byte << shift) & _U64, at
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift >= 70:
            raise EncodingError("a varint has more than ten bytes")
    raise EncodingError("a varint ends too early")


def decode(message: Message, data: bytes | bytearray | memoryview) -> Values:
    """The values of a message; repeated fields are always present, as lists. Raises EncodingError."""
    view = memoryview(data)
    return _decode(message, view, 0, len(view))


def _decode(message: Message, view: memoryview, at: int, end: int) -> Values:
    values: Values = {name: [] for name in message.repeated}
    left = message.fields_max
    while at < end:
        left -= 1
        if left < 0:
            raise EncodingError(f"{message.name} with more than {message.fields_max} fields")
        start = at
        key, at = decode_varint(view, at, end)
        field = message.by_key.get(key)
        value: Any = None
        if field is None:
            at = _skip(message, view, at, end, key)
        elif key & 7 in _FIXED:
            start_of_part, at = at, _offset_after(at, _FIXED[key & 7], end)
            value = int.from_bytes(view[start_of_part:at], "little")
        elif key & 7:
            size, at = decode_varint(view, at, end)
            start_of_part, at = at, _offset_after(at, size, end)
            value = (
                field.of_part(view[start_of_part:at])
                if field.message is None
                else _decode(field.message, view, start_of_part, at)
            )
        else:
            raw, at = decode_varint(view, at, end)
            value = field.of_number(raw)
        if field is None or value is None:
            if message.keeps_unknown:
                values[UNKNOWN] = values.get(UNKNOWN, b"") + bytes(view[start:at])
        elif field.repeated:
            values[field.name].append(value)
        else:
            values[field.name] = value
    check_required(message, values)
    return values


def _offset_after(at: int, size: int, end: int) -> int:
    """The offset behind a field of ``size`` bytes that begins at ``at``."""
    if size > end - at:
        raise EncodingError(f"a field of {size} bytes where {end - at} are left")
    return at + size


def _skip(message: Message, view: memoryview, at: int, end: int, key: int) -> int:
    """The offset behind an unknown field."""
    number, wire_type = key >> 3, key & 7
    if not 0 < number < 1 << 29:
        raise EncodingError(f"{message.name}: field number {number} cannot be")
    if wire_type == 0:
        return decode_varint(view, at, end)[1]
    if wire_type == 2:
        size, at = decode_varint(view, at, end)
        return _offset_after(at, size, end)
    if wire_type not in _FIXED:
        raise EncodingError(f"{message.name}: field {number} has wire type {wire_type}")
    return _offset_after(at, _FIXED[wire_type], end)


_FIXED = {1: 8, 5: 4}
"""Bytes of a value, by wire type."""


# ---- conversion of values -----------------------------------------------------------------------


def decode_utf8(field: Field, data: bytes) -> str:
    """The text of a string field. Raises EncodingError."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise EncodingError(f"field {field.name} is not UTF-8") from None


def enum_member(field: Field, number: int) -> IntEnum:
    """The member of an enum field. Raises EncodingError if there is none."""
    member = field.members.get(number)
    if member is None:
        raise EncodingError(f"field {field.name} has the unknown value {number}")
    return member


def _of_number(field: Field) -> Callable[[int], int | None]:
    """The conversion of a field's numbers."""
    match field.kind:
        case Kind.INT64:
            return lambda raw: raw if raw <= _I64_MAX else raw - _U64 - 1
        case Kind.INT32:
            return _int32
        case Kind.UINT32:
            return lambda raw: raw & 0xFFFFFFFF
        case Kind.BOOL:
            return bool
        case Kind.ENUM if field.strict:
            return lambda raw: enum_member(field, _int32(raw))
        case Kind.ENUM:
            return lambda raw: field.members.get(_int32(raw))
        case _:
            return lambda raw: raw


def _of_part(field: Field) -> Callable[[memoryview], Any]:
    """The conversion of a field's bytes, for a field that is no message."""
    match field.kind:
        case Kind.STRING:
            return lambda part: decode_utf8(field, bytes(part))
        case Kind.BYTES:
            return bytes
        case _:
            return lambda part: part


def _int32(raw: int) -> int:
    raw &= 0xFFFFFFFF
    return raw if raw <= 0x7FFFFFFF else raw - (1 << 32)
