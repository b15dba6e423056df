"""The text form of protobuf messages, as Java 4.17 writes it and as 4.17 and 4.18 read it.

Written: one field per line in ascending order of the numbers, enums by name, strings and bytes in double quotes with
every byte outside 0x20..0x7e escaped, messages as ``name {``, two blanks of indent and ``}``.

Read more widely: any order, all on one line, ``<`` ``>`` for braces, ``,`` and ``;`` between fields, ``#`` comments,
single quotes, adjacent literals, short lists in brackets, enums by number, unknown fields. Of the two readers in the
field one refuses unknown fields and the other numbers for enums, so neither is ever written here on its own. If a
message keeps unknown fields (protobuf.UNKNOWN), those that were read are written back behind the known ones, letter
by letter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from bkbox.base.text import quoted
from bkbox.errors import EncodingError
from bkbox.wire.protobuf import (
    UNKNOWN,
    Field,
    Kind,
    Label,
    Message,
    Values,
    check_required,
    decode_utf8,
    enum_member,
)

_ESCAPES = {
    "a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11, "\\": 92, "'": 39, '"': 34, "?": 63,
}  # fmt: skip
_WRITTEN = {code: f"\\{letter}" for letter, code in _ESCAPES.items() if letter != "?"}
_NESTING_MAX = 32

_TOKEN = re.compile(
    r"""(?P<blank>[ \t\n\v\f\r]+|\#[^\n]*)
    |(?P<name>[a-zA-Z_][0-9a-zA-Z_+-]*)
    |(?P<number>\.?[0-9+-][0-9a-zA-Z_.+-]*)
    |(?P<string>"(?:[^"\n\\]|\\.)*"|'(?:[^'\n\\]|\\.)*')
    |(?P<mark>[{}<>:,;\[\]])""",
    re.VERBOSE,
)
_ESCAPE = re.compile(
    r"\\(?:(?P<octal>[0-7]{1,3})|x(?P<hex>[0-9a-fA-F]{1,2})|u(?P<u4>[0-9a-fA-F]{4})"
    r"|U(?P<u8>[0-9a-fA-F]{8})|(?P<letter>.))",
    re.DOTALL,
)
_INTEGER = re.compile(r"(-?)(?:0[xX]([0-9a-fA-F]+)|(0[0-7]*)|([1-9][0-9]*))")


# ---- writing ----------------------------------------------------------------------------------


def encode(message: Message, values: Values) -> str:
    """The text of a message, pure ASCII but for unknown fields. Raises EncodingError."""
    return "".join(_lines(message, values, ""))


def _lines(message: Message, values: Values, indent: str) -> Iterator[str]:
    check_required(message, values)
    for field in message.fields:
        value = values.get(field.name)
        if value is None:
            continue
        for item in value if field.label is Label.REPEATED else (value,):
            if field.message is not None:
                yield f"{indent}{field.name} {{\n"
                yield from _lines(field.message, item, indent + "  ")
                yield f"{indent}}}\n"
            else:
                yield f"{indent}{field.name}: {_scalar_text(field, item)}\n"
    yield values.get(UNKNOWN, b"").decode()


def _scalar_text(field: Field, value: Any) -> str:
    if field.kind is Kind.STRING:
        return f'"{_escape(value.encode())}"'
    if field.kind is Kind.BYTES:
        return f'"{_escape(value)}"'
    if field.kind is Kind.ENUM:
        return str(value.name)
    return str(value)


def _escape(data: bytes) -> str:
    return "".join(
        _WRITTEN.get(byte) or (chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}")
        for byte in data
    )


# ---- reading ----------------------------------------------------------------------------------


def decode(message: Message, text: str) -> Values:
    """The values of a message; repeated fields are always present, as lists. Raises EncodingError."""
    return _Reader(text).message(message, "", 0)


class _Token(NamedTuple):
    """One token, and its position in the text."""

    kind: str
    text: str
    start: int
    end: int


class _Reader:
    """Recursive descent over the tokens of one text; the empty token is the end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._at = 0

    def _peek(self) -> _Token:
        return self._tokens[self._at]

    def _next(self) -> _Token:
        token = self._tokens[self._at]
        if token.kind != "end":
            self._at += 1
        return token

    def _accept(self, *marks: str) -> str:
        """Consume and return the next mark if it is one of these, else return an empty text."""
        token = self._peek()
        if token.kind == "mark" and token.text in marks:
            self._at += 1
            return token.text
        return ""

    def message(self, message: Message, closing: str, depth: int) -> Values:
        """Fields up to the closing mark, or to the end of the text if that is empty."""
        values: Values = {f.name: [] for f in message.fields if f.label is Label.REPEATED}
        while not self._closed(closing):
            start = self._peek().start
            field = message.by_name.get(self._name())
            if field is None:
                self._skip_value(depth)
                if message.keeps_unknown:
                    unknown = self._text[start : self._tokens[self._at - 1].end]
                    line = f"{'  ' * depth}{unknown}\n"
                    values[UNKNOWN] = values.get(UNKNOWN, b"") + line.encode()
            elif field.label is Label.REPEATED:
                values[field.name].extend(self._values(field, depth))
            else:
                values[field.name] = self._field_value(field, depth)
            self._accept(",", ";")
        check_required(message, values)
        return values

    def _closed(self, closing: str) -> bool:
        return bool(self._accept(closing)) if closing else self._peek().kind == "end"

    def _name(self) -> str:
        token = self._next()
        if token.kind != "name":
            raise EncodingError(f"a field name is wanted where {quoted(token.text)} stands")
        return token.text

    def _values(self, field: Field, depth: int) -> Iterator[Any]:
        """One value, or those of a short list."""
        colon = self._accept(":")
        if not (colon and self._accept("[")):
            yield self._one(field, colon, depth)
            return
        if self._accept("]"):
            return
        while True:
            yield self._one(field, ":", depth)
            if self._accept("]"):
                return
            if not self._accept(","):
                raise EncodingError(f"the list of {field.name} does not end")

    def _field_value(self, field: Field, depth: int) -> Any:
        return self._one(field, self._accept(":"), depth)

    def _one(self, field: Field, colon: str, depth: int) -> Any:
        if field.message is not None:
            opening = self._accept("{", "<")
            if not opening:
                raise EncodingError(f"{field.name} is a message and needs braces")
            return self.message(field.message, _closing(opening, depth), depth + 1)
        if not colon:
            raise EncodingError(f"a colon is missing after {field.name}")
        if field.kind in (Kind.STRING, Kind.BYTES):
            data = self._literals(field.name)
            return data if field.kind is Kind.BYTES else decode_utf8(field, data)
        token = self._next()
        if field.kind is Kind.ENUM and token.kind == "name":
            return _enum_by_name(field, token.text)
        number = _integer(field, token.text)
        return enum_member(field, number) if field.kind is Kind.ENUM else number

    def _literals(self, name: str) -> bytes:
        data = b""
        if self._peek().kind != "string":
            raise EncodingError(f"a string is wanted for {name}")
        while self._peek().kind == "string":
            data += _unescape(self._next().text[1:-1])
        return data

    def _skip_value(self, depth: int) -> None:
        """Skip the value of an unknown field."""
        colon = self._accept(":")
        opening = self._accept("{", "<")
        if opening:
            self.message(_UNKNOWN, _closing(opening, depth), depth + 1)
        elif not colon:
            raise EncodingError("a colon is missing after an unknown field")
        elif self._accept("["):
            while not self._accept("]"):
                self._skip_scalar()
                self._accept(",")
        else:
            self._skip_scalar()

    def _skip_scalar(self) -> None:
        token = self._next()
        if token.kind in ("mark", "end"):
            raise EncodingError(f"a value is wanted where {quoted(token.text)} stands")
        while token.kind == "string" and self._peek().kind == "string":
            self._next()


_UNKNOWN = Message("unknown")


def _closing(opening: str, depth: int) -> str:
    if depth >= _NESTING_MAX:
        raise EncodingError(f"messages are nested deeper than {_NESTING_MAX}")
    return "}" if opening == "{" else ">"


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise EncodingError(f"text format: nothing begins with {quoted(text[at : at + 10])}")
        at = match.end()
        kind = match.lastgroup
        assert kind is not None
        if kind != "blank":
            yield _Token(kind, match.group(), match.start(), at)
    yield _Token("end", "", at, at)


def _enum_by_name(field: Field, name: str) -> Any:
    assert field.enum is not None
    try:
        return field.enum[name]
    except KeyError:
        raise EncodingError(f"field {field.name} has the unknown value {name}") from None


def _integer(field: Field, token: str) -> int:
    match = _INTEGER.fullmatch(token)
    if match is None:
        raise EncodingError(f"field {field.name} is no number: {quoted(token)}")
    sign, hexadecimal, octal, decimal = match.groups()
    digits, base = (hexadecimal, 16) if hexadecimal else (octal, 8) if octal else (decimal, 10)
    bits = 63 if field.kind is Kind.INT64 else 31
    if len(digits) > 32:
        raise EncodingError(f"field {field.name} is out of range")
    number = int(sign + digits, base)
    if not -(1 << bits) <= number < 1 << bits:
        raise EncodingError(f"field {field.name} is out of range: {number}")
    return number


def _unescape(text: str) -> bytes:
    out = bytearray()
    at = 0
    for match in _ESCAPE.finditer(text):
        out += _utf8(text[at : match.start()])
        out += _escaped(match)
        at = match.end()
    out += _utf8(text[at:])
    return bytes(out)


def _escaped(match: re.Match[str]) -> bytes:
    if match["octal"]:
        return bytes((int(match["octal"], 8) & 0xFF,))
    if match["hex"]:
        return bytes((int(match["hex"], 16),))
    if match["u4"] or match["u8"]:
        code = int(match["u4"] or match["u8"], 16)
        if code > 0x10FFFF:
            raise EncodingError(f"no such character: {match[0]}")
        return _utf8(chr(code))
    if match["letter"] not in _ESCAPES:
        raise EncodingError(f"unknown escape {quoted(match[0])}")
    return bytes((_ESCAPES[match["letter"]],))


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise EncodingError("half of a surrogate pair in a string") from None


def lines_of(text: str) -> list[str]:
    """The lines of old plain-text payloads, as Java's readers split them."""
    lines = re.split("\r\n|\n|\r", text)
    return lines if lines[-1] else lines[:-1]


def text_of(data: bytes | bytearray | memoryview) -> str:
    """The text of a payload that holds text format. Raises EncodingError."""
    try:
        return bytes(data).decode()
    except UnicodeDecodeError:
        raise EncodingError("the text is not UTF-8") from None
