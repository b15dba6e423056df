"""A small proto2 codec: messages are described by tables, values are dicts by field name.

Written in the order of the table (by field number, as protobuf-java does), required fields
always, zeros too. Read in any order; unknown fields are skipped; the last of several values of a
single field counts. An int64 of -1 has ten bytes. A value is an int (enums: a member), bool, str,
bytes, memoryview (VIEW), a dict (messages), or a list of those (repeated).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any

from bkbox.errors import EncodingError

Values = dict[str, Any]
_U64 = (1 << 64) - 1


class Kind(Enum):
    """Type of a field's values."""

    INT32 = "int32"
    INT64 = "int64"
    BOOL = "bool"
    ENUM = "enum"
    STRING = "string"
    BYTES = "bytes"
    VIEW = "bytes, left in place when read"
    MESSAGE = "message"


class Label(Enum):
    """How often a field is there."""

    REQUIRED = "required"
    OPTIONAL = "optional"
    REPEATED = "repeated"


@dataclass(frozen=True, slots=True)
class Field:
    """One field; ``enum`` or ``message`` says which one if the kind is ENUM or MESSAGE."""

    number: int
    name: str
    kind: Kind
    label: Label = Label.OPTIONAL
    enum: type[IntEnum] | None = None
    message: Message | None = None


class Message:
    """A message type: its name, for error texts, and its fields in ascending order."""

    __slots__ = ("by_name", "by_number", "fields", "name")

    def __init__(self, name: str, *fields: Field) -> None:
        self.name = name
        self.fields = fields
        self.by_number = {field.number: field for field in fields}
        self.by_name = {field.name: field for field in fields}


def check_required(message: Message, values: Values) -> None:
    """Raise EncodingError if a required field has no value."""
    for field in message.fields:
        if field.label is Label.REQUIRED and values.get(field.name) is None:
            raise EncodingError(f"{message.name} without the required field {field.name}")


# ---- writing ------------------------------------------------------------------------------------


def encode_varint(value: int) -> bytes:
    """A varint; negative numbers as 64-bit two's complement."""
    value &= _U64
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode(message: Message, values: Values) -> bytes:
    """The bytes of a message. Fields that are None or absent are left out. Raises EncodingError."""
    check_required(message, values)
    out = bytearray()
    for field in message.fields:
        value = values.get(field.name)
        if value is None:
            continue
        for item in value if field.label is Label.REPEATED else (value,):
            out += _encode_field(field, item)
    return bytes(out)


def _encode_field(field: Field, value: Any) -> bytes:
    if field.kind in (Kind.INT32, Kind.INT64, Kind.BOOL, Kind.ENUM):
        return encode_varint(field.number << 3) + encode_varint(int(value))
    if field.kind is Kind.MESSAGE:
        assert field.message is not None
        data = encode(field.message, value)
    elif field.kind is Kind.STRING:
        data = value.encode()
    else:
        data = value
    return encode_varint(field.number << 3 | 2) + encode_varint(len(data)) + data


# ---- reading ------------------------------------------------------------------------------------


def decode_varint(data: memoryview, at: int) -> tuple[int, int]:
    """(value in 0..2**64-1, offset behind it). Raises EncodingError."""
    value = shift = 0
    while True:
        if at >= len(data):
            raise EncodingError("a varint ends too early")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _U64, at
        shift += 7
        if shift >= 70:
            raise EncodingError("a varint has more than ten bytes")


def decode(message: Message, data: bytes | bytearray | memoryview) -> Values:
    """The values of a message; repeated fields are always there, as lists. Raises EncodingError."""
    view = memoryview(data)
    values: Values = {f.name: [] for f in message.fields if f.label is Label.REPEATED}
    at = 0
    while at < len(view):
        key, at = decode_varint(view, at)
        number, wire_type = key >> 3, key & 7
        if not 0 < number < 1 << 29:
            raise EncodingError(f"{message.name}: field number {number} cannot be")
        field = message.by_number.get(number)
        if field is None or wire_type != _wire_type(field):
            at = _skip(view, at, number, wire_type)
            continue
        value, at = _decode_value(field, view, at)
        if field.label is Label.REPEATED:
            values[field.name].append(value)
        else:
            values[field.name] = value
    check_required(message, values)
    return values


def _wire_type(field: Field) -> int:
    return 2 if field.kind in (Kind.STRING, Kind.BYTES, Kind.VIEW, Kind.MESSAGE) else 0


def _decode_value(field: Field, view: memoryview, at: int) -> tuple[Any, int]:
    if _wire_type(field) == 0:
        raw, at = decode_varint(view, at)
        return _decode_number(field, raw), at
    data, at = _delimited(view, at)
    if field.kind is Kind.MESSAGE:
        assert field.message is not None
        return decode(field.message, data), at
    if field.kind is Kind.VIEW:
        return data, at
    if field.kind is Kind.BYTES:
        return bytes(data), at
    return decode_utf8(field, bytes(data)), at


def decode_utf8(field: Field, data: bytes) -> str:
    """The text of a string field. Raises EncodingError."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise EncodingError(f"field {field.name} is not UTF-8") from None


def _decode_number(field: Field, raw: int) -> int:
    if field.kind is Kind.BOOL:
        return raw != 0
    bits = 64 if field.kind is Kind.INT64 else 32
    number = raw & ((1 << bits) - 1)
    if number >> (bits - 1):
        number -= 1 << bits
    return enum_member(field, number) if field.kind is Kind.ENUM else number


def enum_member(field: Field, number: int) -> IntEnum:
    """The member of an enum field. Raises EncodingError where there is none."""
    assert field.enum is not None
    try:
        return field.enum(number)
    except ValueError:
        raise EncodingError(f"field {field.name} has the unknown value {number}") from None


def _delimited(view: memoryview, at: int) -> tuple[memoryview, int]:
    size, at = decode_varint(view, at)
    if size > len(view) - at:
        raise EncodingError(f"a field of {size} bytes where {len(view) - at} are left")
    return view[at : at + size], at + size


def _skip(view: memoryview, at: int, number: int, wire_type: int) -> int:
    """The offset behind an unknown field."""
    if wire_type == 0:
        return decode_varint(view, at)[1]
    if wire_type == 2:
        return _delimited(view, at)[1]
    size = {1: 8, 5: 4}.get(wire_type)
    if size is None:
        raise EncodingError(f"field {number} has wire type {wire_type}")
    if size > len(view) - at:
        raise EncodingError("a fixed-size field ends too early")
    return at + size
