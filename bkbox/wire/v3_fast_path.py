"""The fast path of version 3 of the protocol: adds and reads and their responses, without the generic codec.

A fast-path request has these fields by number, each once:

    0a n   header    08 03  version 3   10 o  operation   18 t  transaction   [20 p  priority]
    aa06 n addRequest   08 ledger   10 entry   1a 14 master key   22 n body
    a206 n readRequest  08 ledger   10 entry  [1a 14 master key]

The priority is ignored: it counts only if normal adds are not admitted. Ids are not negative, a master key has 20
bytes, and the body of an add has at least the 24 bytes of ledger, entry and last add confirmed, of which the first
two repeat the ids. A fast-path response is

    0a n   header    08 03   10 o   18 t          10 s  status
    aa06 n addResponse  08 status   10 ledger   18 entry
    a206 n readResponse 08 status   10 ledger   18 entry  [22 n body]  [28 maxLAC]

with the same status twice. Everything else (flags, long polls, unknown or repeated fields, another order) is for
bkbox.wire.v3; such a message means here exactly what it means there, and has the same bytes. Numbers are varints:
seven bits in each byte, the low ones first; a negative number has ten bytes. Formats: wire/v3_format.py.

``code`` is the number of a response code in version 3. No writing function checks the space: the size functions give
it beforehand. ``start`` and ``end`` are those of a frame's body, without the length prefix.
"""

from __future__ import annotations

from bkbox.native import memory
from bkbox.native.memory import Buffer, Data

ADD = 1
READ = 2
"""Results of a parse; 0: not on the fast path."""

NO_LAC = -2
"""A maxLAC that means: the response has none. (-1 is the LAC of a ledger without entries.)"""

_ADD = ADD
_READ = READ
_NO_LAC = NO_LAC
_KEY_BYTES = 20
_PREFIX = 4
_OP_READ = 1  # numbers of the operations in a header
_OP_ADD = 2
_VERSION_AND_OPERATION = 0x08031000
_ADD_PART = 0xAA06
_READ_PART = 0xA206
_KEY_TAG = 0x1A14  # and the size of a master key
_LEAST_MESSAGE = 15  # bytes of a read whose numbers have one byte each
_LEAST_BODY = 24
_I64_MAX = (1 << 63) - 1
_U64_MAX = (1 << 64) - 1


class _Cursor:
    """Reads the common parts of requests and responses: numbers, the header, the beginning of the part.

    ``at`` is the offset behind what was read last. It lies beyond the end if a number is cut off, so that nothing can
    be found behind it.
    """

    __slots__ = ("at", "txn")

    def __init__(self) -> None:
        self.at = 0
        self.txn = 0

    def number(self, data: Data, at: int, end: int) -> int:
        value = 0
        shift = 0
        while at < end and shift < 70:
            byte = data[at]
            at += 1
            bits = byte & 0x7F
            value |= bits << shift
            if byte < 0x80:
                self.at = at
                return value & _U64_MAX
            shift += 7
        self.at = end + 1
        return 0

    def field(self, data: Data, tag: int, end: int) -> int:
        """The number behind the one-byte tag that has to come next."""
        if self.at < end and data[self.at] == tag:
            return self.number(data, self.at + 1, end)
        self.at = end + 1
        return 0

    def header(self, data: Data, start: int, end: int) -> int:
        """The operation, OP_ADD or OP_READ, if a fast-path header begins at ``start``; 0 if not."""
        if end - start < _LEAST_MESSAGE or data[start] != 0x0A:
            return 0
        operation = memory.u32(data, start + 2) ^ _VERSION_AND_OPERATION
        if operation > _OP_ADD or data[start + 6] != 0x18:
            return 0
        end_of_header = start + 2 + data[start + 1]
        if end_of_header > end:
            return 0
        self.txn = self.number(data, start + 7, end_of_header)
        if self.at < end_of_header:
            self.field(data, 0x20, end_of_header)
        return operation if self.at == end_of_header else 0

    def part(self, data: Data, operation: int, end: int) -> bool:
        """True if the rest is the part of this operation; ``at`` is then the start of its fields."""
        tag = _ADD_PART if operation == _OP_ADD else _READ_PART
        if end - self.at < 2 or memory.u16(data, self.at) != tag:
            return False
        size = self.number(data, self.at + 2, end)
        return self.at <= end and size == end - self.at


class FastRequestV3:
    """A fast-path request; reusable. It holds one only after a parse that was not 0.

    ``txn`` is unsigned, 64 bits. ``key_at`` is the offset of the master key, 0 if there is none; the body of an add
    is data[body_at:body_end].
    """

    __slots__ = ("_cursor", "body_at", "body_end", "entry", "key_at", "ledger", "txn")

    def __init__(self) -> None:
        self._cursor = _Cursor()
        self.txn = 0
        self.ledger = 0
        self.entry = 0
        self.key_at = 0
        self.body_at = 0
        self.body_end = 0

    def parse(self, data: Data, start: int, end: int) -> int:
        """ADD or READ if data[start:end] is such a request, 0 if it is not on the fast path."""
        cursor = self._cursor
        operation = cursor.header(data, start, end)
        if operation == 0 or not cursor.part(data, operation, end):
            return 0
        ledger = cursor.field(data, 0x08, end)
        entry = cursor.field(data, 0x10, end)
        at = cursor.at
        if ledger > _I64_MAX or entry > _I64_MAX:
            return 0
        self.txn = cursor.txn
        self.ledger = ledger
        self.entry = entry
        self.key_at = 0
        if operation == _OP_READ and at == end:
            return _READ
        if end - at < 2 + _KEY_BYTES or memory.u16(data, at) != _KEY_TAG:
            return 0
        self.key_at = at + 2
        cursor.at = at + 2 + _KEY_BYTES
        if operation == _OP_READ:
            return _READ if cursor.at == end else 0
        size = cursor.field(data, 0x22, end)
        at = cursor.at
        if at > end or end - at < _LEAST_BODY or size != end - at:
            return 0
        if memory.i64(data, at) != self.ledger or memory.i64(data, at + 8) != self.entry:
            return 0
        self.body_at = at
        self.body_end = end
        return _ADD


class FastResponseV3:
    """A fast-path response; reusable. It holds one only after a parse that was not 0.

    ``body_at`` is 0 if the response to a read has no entry; else the entry is data[body_at:body_end]. ``lac`` is NO_LAC
    if there is none.
    """

    __slots__ = ("_cursor", "body_at", "body_end", "code", "entry", "lac", "ledger", "txn")

    def __init__(self) -> None:
        self._cursor = _Cursor()
        self.txn = 0
        self.code = 0
        self.ledger = 0
        self.entry = 0
        self.body_at = 0
        self.body_end = 0
        self.lac = NO_LAC

    def parse(self, data: Data, start: int, end: int) -> int:
        """ADD or READ if data[start:end] is the response to such a request, 0 if it is not on the fast path."""
        cursor = self._cursor
        operation = cursor.header(data, start, end)
        if operation == 0:
            return 0
        code = cursor.field(data, 0x10, end)
        if code != 0 and not 402 <= code <= 404 and not 501 <= code <= 507:
            return 0
        if not cursor.part(data, operation, end) or cursor.field(data, 0x08, end) != code:
            return 0
        ledger = cursor.field(data, 0x10, end)
        entry = cursor.field(data, 0x18, end)
        if cursor.at > end:
            return 0
        self.txn = cursor.txn
        self.code = code
        self.ledger = _signed(ledger)
        self.entry = _signed(entry)
        self.body_at = 0
        self.body_end = 0
        self.lac = _NO_LAC
        if operation == _OP_ADD:
            return _ADD if cursor.at == end else 0
        if cursor.at < end and data[cursor.at] == 0x22:
            size = cursor.field(data, 0x22, end)
            if cursor.at > end or size > end - cursor.at:
                return 0
            self.body_at = cursor.at
            cursor.at += size
            self.body_end = cursor.at
        if cursor.at < end:
            self.lac = _signed(cursor.field(data, 0x28, end))
            if self.lac < -1:
                return 0
        return _READ if cursor.at == end else 0


def _signed(value: int) -> int:
    return value if value <= _I64_MAX else value - _U64_MAX - 1


# ---- numbers ----------------------------------------------------------------------------------------------


def _size(value: int) -> int:
    size = 1
    value &= _U64_MAX
    while value > 0x7F:
        value >>= 7
        size += 1
    return size


def _put(buffer: Buffer, at: int, value: int) -> int:
    value &= _U64_MAX
    while value > 0x7F:
        buffer[at] = value & 0x7F | 0x80
        value >>= 7
        at += 1
    buffer[at] = value
    return at + 1


def _put_header(buffer: Buffer, at: int, size: int, operation: int, txn: int) -> int:
    """Write the length prefix of a frame of ``size`` bytes, prefix included, and its header."""
    memory.put_u32(buffer, at, size - _PREFIX)
    buffer[at + 4] = 0x0A
    buffer[at + 5] = 5 + _size(txn)
    memory.put_u32(buffer, at + 6, _VERSION_AND_OPERATION | operation)
    buffer[at + 10] = 0x18
    return _put(buffer, at + 11, txn)


# ---- responses --------------------------------------------------------------------------------------------


def _response_part_size(code: int, ledger: int, entry: int) -> int:
    """Bytes of status, ledger and entry in the part of a response."""
    return 3 + _size(code) + _size(ledger) + _size(entry)


def _put_response_part(
    buffer: Buffer, at: int, tag: int, size: int, code: int, ledger: int, entry: int
) -> int:
    """Write the outer status, and the part of ``size`` bytes up to the entry."""
    buffer[at] = 0x10
    at = _put(buffer, at + 1, code)
    memory.put_u16(buffer, at, tag)
    at = _put(buffer, at + 2, size)
    buffer[at] = 0x08
    at = _put(buffer, at + 1, code)
    buffer[at] = 0x10
    at = _put(buffer, at + 1, ledger)
    buffer[at] = 0x18
    return _put(buffer, at + 1, entry)


def add_response_size(txn: int, code: int, ledger: int, entry: int) -> int:
    """Bytes of the response frame of an add: 23 to 52."""
    return 15 + _size(txn) + _size(code) + _response_part_size(code, ledger, entry)


def put_add_response(buffer: Buffer, at: int, txn: int, code: int, ledger: int, entry: int) -> int:
    """Write the response frame of an add; returns its end."""
    part = _response_part_size(code, ledger, entry)
    at = _put_header(buffer, at, 15 + _size(txn) + _size(code) + part, _OP_ADD, txn)
    return _put_response_part(buffer, at, _ADD_PART, part, code, ledger, entry)


def read_head_size(txn: int, code: int, ledger: int, entry: int, length: int, lac: int) -> int:
    """Bytes of the response frame of a read, up to its entry of ``length`` bytes: at least 25.

    ``lac`` may be NO_LAC.
    """
    part = _read_part(code, ledger, entry, length, lac)
    size = 15 + _size(txn) + _size(code) + _size(part)
    return size + _response_part_size(code, ledger, entry) + _size(length)


def put_read_head(
    buffer: Buffer, at: int, txn: int, code: int, ledger: int, entry: int, length: int, lac: int
) -> int:
    """Write the head of the response to a read; returns the offset of its entry, which the tail follows."""
    part = _read_part(code, ledger, entry, length, lac)
    size = 14 + _size(txn) + _size(code) + _size(part) + part
    at = _put_header(buffer, at, size, _OP_READ, txn)
    at = _put_response_part(buffer, at, _READ_PART, part, code, ledger, entry)
    buffer[at] = 0x22
    return _put(buffer, at + 1, length)


def read_tail_size(lac: int) -> int:
    """Bytes of the response frame of a read, behind its entry: 0, 2 to 11."""
    return 0 if lac == _NO_LAC else 1 + _size(lac)


def put_read_tail(buffer: Buffer, at: int, lac: int) -> int:
    """Write the tail of the response to a read; returns its end."""
    if lac == _NO_LAC:
        return at
    buffer[at] = 0x28
    return _put(buffer, at + 1, lac)


def _read_part(code: int, ledger: int, entry: int, length: int, lac: int) -> int:
    return (
        _response_part_size(code, ledger, entry) + 1 + _size(length) + length + read_tail_size(lac)
    )


# ---- requests ---------------------------------------------------------------------------------------------


def add_head_size(txn: int, ledger: int, entry: int, length: int) -> int:
    """Bytes of the frame of an add, up to its body of ``length`` bytes."""
    fields = _add_fields(ledger, entry, length)
    return 13 + _size(txn) + _size(fields + length) + fields


def put_add_head(
    buffer: Buffer, at: int, txn: int, ledger: int, entry: int, key: Data, length: int
) -> int:
    """Write an add up to its body, with which the frame ends. ``key``: the 20 bytes of the master key."""
    fields = _add_fields(ledger, entry, length)
    part = fields + length
    at = _put_header(buffer, at, 13 + _size(txn) + _size(part) + part, _OP_ADD, txn)
    memory.put_u16(buffer, at, _ADD_PART)
    at = _put(buffer, at + 2, part)
    buffer[at] = 0x08
    at = _put(buffer, at + 1, ledger)
    buffer[at] = 0x10
    at = _put(buffer, at + 1, entry)
    memory.put_u16(buffer, at, _KEY_TAG)
    memory.copy(buffer, at + 2, key, 0, _KEY_BYTES)
    at += 2 + _KEY_BYTES
    buffer[at] = 0x22
    return _put(buffer, at + 1, length)


def _add_fields(ledger: int, entry: int, length: int) -> int:
    return 5 + _KEY_BYTES + _size(ledger) + _size(entry) + _size(length)
