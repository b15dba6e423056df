"""A small proto2 codec: messages are described by tables, values are dicts by field name.

Written in the order of the table (by field number, as protobuf-java does), required fields
always, zeros too. Read in any order; the last of several values of a single field counts. An int64
of -1 has ten bytes. A value is an int (enums: a member), bool, str, bytes, memoryview (VIEW), a
dict (messages), or a list of those (repeated).

Unknown fields are skipped, or kept where the message asks for it: then they are one value more,
under UNKNOWN, and written behind the known fields as they came. A known field of another wire
type is an unknown one, and so is an enum value that has no name, unless the field is strict: then
it is an error. Groups, which nothing in BookKeeper uses, are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field as derived
from enum import Enum, IntEnum
from typing import Any

from bkbox.errors import EncodingError

Values = dict[str, Any]

UNKNOWN = "(unknown fields)"
"""Key of the unknown fields in the values of a message that keeps them: bytes, as they came."""

_U64 = (1 << 64) - 1
_I64_MAX = (1 << 63) - 1


class Kind(Enum):
    """Type of a field's values."""

    INT32 = "int32"
    INT64 = "int64"
    UINT32 = "uint32"
    UINT64 = "uint64"
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


_DELIMITED = (Kind.STRING, Kind.BYTES, Kind.VIEW, Kind.MESSAGE)


@dataclass(frozen=True, slots=True)
class Field:
    """One field; ``enum`` or ``message`` says which one if the kind is ENUM or MESSAGE.

    ``strict``: an enum value without a name is an error, not an unknown field. ``key`` and ``tag``
    are what stands before each value: number and wire type, as an int and as its varint;
    ``members`` are those of the enum by number.
    """

    number: int
    name: str
    kind: Kind
    label: Label = Label.OPTIONAL
    enum: type[IntEnum] | None = None
    message: Message | None = None
    strict: bool = False
    key: int = derived(init=False, repr=False, compare=False)
    tag: bytes = derived(init=False, repr=False, compare=False)
    members: dict[int, IntEnum] = derived(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        members = {} if self.enum is None else {member.value: member for member in self.enum}
        object.__setattr__(self, "members", members)
        object.__setattr__(self, "key", self.number << 3 | (2 if self.kind in _DELIMITED else 0))
        object.__setattr__(self, "tag", encode_varint(self.key))


class Message:
    """A message type: its name, for error texts, and its fields in ascending order."""

    __slots__ = ("by_key", "by_name", "fields", "keeps_unknown", "name", "repeated", "required")

    def __init__(self, name: str, *fields: Field, keeps_unknown: bool = False) -> None:
        self.name = name
        self.fields = fields
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
    check_required(message, values)
    out: list[bytes] = []
    for field in message.fields:
        value = values.get(field.name)
        if value is None:
            continue
        for item in value if field.label is Label.REPEATED else (value,):
            out.append(field.tag)
            if field.key & 7 == 0:
                out.append(encode_varint(int(item)))
                continue
            if field.message is not None:
                item = encode(field.message, item)
            elif field.kind is Kind.STRING:
                item = item.encode()
            out += (encode_varint(len(item)), item)
    out.append(values.get(UNKNOWN, b""))
    return b"".join(out)


# ---- reading ------------------------------------------------------------------------------------


def decode_varint(data: memoryview, at: int) -> tuple[int, int]:
    """(value in 0..2**64-1, offset behind it). Raises EncodingError."""
    size = len(data)
    if at < size and data[at] < 0x80:
        return data[at], at + 1
    value = shift = 0
    while True:
        if at >= size:
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
    values: Values = {name: [] for name in message.repeated}
    at = 0
    while at < len(view):
        start = at
        key, at = decode_varint(view, at)
        field = message.by_key.get(key)
        value = None
        if field is None:
            at = _skip(message, view, at, key)
        elif key & 7:
            part, at = _delimited(view, at)
            value = _decode_part(field, part)
        else:
            raw, at = decode_varint(view, at)
            value = _decode_number(field, raw)
        if field is None or value is None:
            if message.keeps_unknown:
                values[UNKNOWN] = values.get(UNKNOWN, b"") + bytes(view[start:at])
        elif field.label is Label.REPEATED:
            values[field.name].append(value)
        else:
            values[field.name] = value
    check_required(message, values)
    return values


def _decode_part(field: Field, data: memoryview) -> Any:
    if field.message is not None:
        return decode(field.message, data)
    if field.kind is Kind.VIEW:
        return data
    if field.kind is Kind.BYTES:
        return bytes(data)
    return decode_utf8(field, bytes(data))


def decode_utf8(field: Field, data: bytes) -> str:
    """The text of a string field. Raises EncodingError."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise EncodingError(f"field {field.name} is not UTF-8") from None


def _decode_number(field: Field, raw: int) -> int | None:
    """The value; None for an enum value without a name."""
    kind = field.kind
    if kind is Kind.INT64:
        return raw if raw <= _I64_MAX else raw - _U64 - 1
    if kind is Kind.UINT64:
        return raw
    if kind is Kind.BOOL:
        return raw != 0
    number = raw & 0xFFFFFFFF
    if kind is Kind.UINT32:
        return number
    if number > 0x7FFFFFFF:
        number -= 1 << 32
    if kind is Kind.INT32:
        return number
    return enum_member(field, number) if field.strict else field.members.get(number)


def enum_member(field: Field, number: int) -> IntEnum:
    """The member of an enum field. Raises EncodingError where there is none."""
    member = field.members.get(number)
    if member is None:
        raise EncodingError(f"field {field.name} has the unknown value {number}")
    return member


def _delimited(view: memoryview, at: int) -> tuple[memoryview, int]:
    size, at = decode_varint(view, at)
    if size > len(view) - at:
        raise EncodingError(f"a field of {size} bytes where {len(view) - at} are left")
    return view[at : at + size], at + size


def _skip(message: Message, view: memoryview, at: int, key: int) -> int:
    """The offset behind an unknown field."""
    number, wire_type = key >> 3, key & 7
    if not 0 < number < 1 << 29:
        raise EncodingError(f"{message.name}: field number {number} cannot be")
    if wire_type == 0:
        return decode_varint(view, at)[1]
    if wire_type == 2:
        return _delimited(view, at)[1]
    size = {1: 8, 5: 4}.get(wire_type)
    if size is None:
        raise EncodingError(f"{message.name}: field {number} has wire type {wire_type}")
    if size > len(view) - at:
        raise EncodingError("a fixed-size field ends too early")
    return at + size
