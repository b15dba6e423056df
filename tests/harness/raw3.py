"""A blocking client of protocol version 3 that shares no code with bkbox: its own few lines of protobuf."""

from __future__ import annotations

import itertools
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from tests.harness.raw import RawClient, make_entry, master_key

EOK, ENOLEDGER, ENOENTRY, EBADREQ, EIO, EUA, EBADVERSION, EFENCED, EREADONLY = (
    0, 402, 403, 404, 501, 502, 503, 504, 505,
)  # fmt: skip
ETOOMANY, EUNKNOWN = 506, 507
READ, ADD, AUTH, WRITE_LAC, READ_LAC, INFO, START_TLS, FORCE, LIST = 1, 2, 5, 6, 7, 8, 9, 10, 11
RANGE_READ, RANGE_ADD, BATCH_READ = 3, 4, 12
FENCE, PIGGYBACK = 1, 2
PART = {READ: 100, ADD: 101, AUTH: 102, WRITE_LAC: 103, READ_LAC: 104, INFO: 105, START_TLS: 106}
PART |= {FORCE: 107, LIST: 108}
PRIORITY = 100

Fields = list[tuple[int, int | bytes | None]]


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = b""
    while value > 0x7F:
        out += bytes((value & 0x7F | 0x80,))
        value >>= 7
    return out + bytes((value,))


def message(fields: Fields) -> bytes:
    """A message of (number, value) in this order; None is left out."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        elif value is not None:
            out += varint(number << 3 | 2) + varint(len(value)) + value
    return out


def parse(data: bytes) -> dict[int, int | bytes]:
    """The fields of a message by number; numbers as signed 64-bit ones. No field may be repeated."""
    found: dict[int, int | bytes] = {}
    numbers = iter(_values(data))
    for number, value in numbers:
        assert number not in found, f"field {number} is there twice"
        found[number] = value
    return found


def _values(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0

    def read() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = read()
        value = read()
        if key & 7 == 2:
            assert at + value <= len(data)
            yield key >> 3, data[at : at + value]
            at += value
        else:
            assert key & 7 == 0, f"wire type {key & 7}"
            yield key >> 3, value - (1 << 64) if value >> 63 else value


def frame(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


def request(
    operation: int,
    txn: int,
    part: Fields | None = None,
    *,
    version: int = 3,
    priority: int | None = None,
) -> bytes:
    """A complete frame."""
    header = message([(1, version), (2, operation), (3, txn), (4, priority)])
    fields: Fields = [(1, header)]
    if part is not None:
        fields.append((PART[operation], message(part)))
    return frame(message(fields))


def lac_packet(ledger: int, lac: int) -> bytes:
    """An explicit LAC with the CRC32 digest."""
    header = struct.pack(">qq", ledger, lac)
    return header + struct.pack(">Q", zlib.crc32(header))


def add_part(
    ledger: int,
    entry: int,
    payload: bytes = b"x",
    *,
    lac: int = -1,
    recovery: bool = False,
    deferred: bool = False,
    key: bytes | None = None,
    body: bytes | None = None,
) -> Fields:
    data = make_entry(ledger, entry, payload, lac) if body is None else body
    return [
        (1, ledger),
        (2, entry),
        (3, master_key() if key is None else key),
        (4, data),
        (5, 1 if deferred else None),
        (100, 1 if recovery else None),
    ]


def read_part(
    ledger: int,
    entry: int = -1,
    *,
    flag: int | None = None,
    key: bytes | None = None,
    previous: int | None = None,
    timeout_ms: int | None = None,
) -> Fields:
    return [
        (1, ledger),
        (2, entry),
        (3, master_key() if flag == FENCE and key is None else key or None),
        (4, previous),
        (5, timeout_ms),
        (100, flag),
    ]


@dataclass
class Answer:
    """One response: the header's fields, both statuses, and the part of its operation (None: it has none)."""

    header: dict[int, int | bytes]
    status: int
    part: dict[int, int | bytes] | None

    @property
    def operation(self) -> int:
        return int(self.header[2])

    @property
    def txn(self) -> int:
        return int(self.header[3])

    def without_status(self) -> dict[int, int | bytes]:
        """The part without its status."""
        assert self.part is not None
        return {number: value for number, value in self.part.items() if number != 1}


def answer_of(body: bytes) -> Answer:
    """Parses a response, and checks the rules that all responses obey."""
    fields = parse(body)
    header = parse(bytes(fields.pop(1)))
    status = int(fields.pop(2))
    operation = int(header[2])
    assert set(fields) <= {PART.get(operation)}, f"parts {set(fields)} for operation {operation}"
    part = None if not fields else parse(bytes(fields[PART[operation]]))
    if part is not None and operation not in (AUTH, START_TLS):
        assert part[1] == status, "the two statuses differ"
        assert set(header) == {1, 2, 3}, "a header with priority"
        assert header[1] == 3
    return Answer(header, status, part)


class RawClient3(RawClient):
    """Speaks version 3; its v2 methods are still there, for tests that mix versions."""

    def __init__(self, port: int, host: str = "127.0.0.1", timeout: float = 20.0) -> None:
        super().__init__(port, host, timeout)
        self._txns = itertools.count(1)

    def post(self, operation: int, part: Fields | None = None, **header: int) -> int:
        """Sends a request; returns its transaction id."""
        txn = next(self._txns)
        self.send(request(operation, txn, part, **header))
        return txn

    def answer3(self) -> Answer:
        return answer_of(self.frame())

    def ask(self, operation: int, part: Fields | None = None, **header: int) -> Answer:
        """The response to a request, which must be the next one."""
        txn = self.post(operation, part, **header)
        answer = self.answer3()
        assert (answer.txn, answer.operation) == (txn, operation)
        return answer

    def add3(self, ledger: int, entry: int, payload: bytes = b"x", **options: object) -> int:
        priority = PRIORITY if options.get("recovery") else None
        header = {} if priority is None else {"priority": priority}
        answer = self.ask(ADD, add_part(ledger, entry, payload, **options), **header)
        assert answer.without_status() == {2: ledger, 3: entry}
        return answer.status

    def read3(self, ledger: int, entry: int = -1, **options: object) -> Answer:
        return self.ask(READ, read_part(ledger, entry, **options))

    def fence3(self, ledger: int, entry: int = -1, key: bytes | None = None) -> Answer:
        return self.read3(ledger, entry, flag=FENCE, key=key)

    def poll(self, ledger: int, previous: int, timeout_ms: int | None, entry: int = -1) -> int:
        """Sends a long poll as Java's client does; returns its transaction id."""
        return self.post(
            READ,
            read_part(ledger, entry, flag=PIGGYBACK, previous=previous, timeout_ms=timeout_ms),
        )

    def settle(self, ledger: int) -> None:
        """Returns when earlier requests have reached the bookie of this ledger, and a poll among them waits."""
        assert self.ask(FORCE, [(1, ledger)]).status == EOK

    def write_lac(
        self, ledger: int, lac: int, key: bytes | None = None, body: bytes | None = None
    ) -> int:
        packet = lac_packet(ledger, lac) if body is None else body
        key = master_key() if key is None else key
        answer = self.ask(WRITE_LAC, [(1, ledger), (2, lac), (3, key), (4, packet)])
        assert answer.without_status() == {2: ledger}
        return answer.status

    def read_lac(self, ledger: int) -> tuple[int, bytes | None, bytes | None]:
        """Status, explicit LAC packet, last entry."""
        answer = self.ask(READ_LAC, [(1, ledger)])
        part = answer.without_status()
        assert part.pop(2) == ledger
        return answer.status, part.get(3), part.get(4)  # type: ignore[return-value]

    def force(self, ledger: int) -> int:
        answer = self.ask(FORCE, [(1, ledger)])
        assert answer.without_status() == {2: ledger}
        return answer.status

    def list_entries(self, ledger: int) -> tuple[int, bytes | None]:
        answer = self.ask(LIST, [(1, ledger)])
        part = answer.without_status()
        assert part.pop(2) == ledger
        return answer.status, part.get(3)  # type: ignore[return-value]
