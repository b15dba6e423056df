"""A blocking v2 client that shares no code with bkbox: the tests' own view of the wire."""

from __future__ import annotations

import hashlib
import socket
import struct
import zlib
from dataclasses import dataclass

EOK, ENOLEDGER, ENOENTRY, EBADREQ, EIO, EUA, EBADVERSION, EFENCED, EREADONLY = (
    0, 1, 2, 100, 101, 102, 103, 104, 105,
)  # fmt: skip
ETOOMANY, EUNKNOWN = 106, 107
FENCE, RECOVERY, HIGH_PRIORITY = 1, 2, 4


def master_key(password: bytes = b"") -> bytes:
    return hashlib.sha1(b"ledger" + password).digest()


def make_entry(
    ledger: int, entry: int, payload: bytes, lac: int = -1, length: int | None = None
) -> bytes:
    """An entry with the CRC32 digest."""
    header = struct.pack(">qqqq", ledger, entry, lac, len(payload) if length is None else length)
    return header + struct.pack(">Q", zlib.crc32(payload, zlib.crc32(header))) + payload


def payload_of(entry: bytes) -> bytes:
    return entry[40:]


def add_frame(
    ledger: int, entry: int, payload: bytes, flags: int = 0, key: bytes | None = None
) -> bytes:
    key = master_key() if key is None else key
    body = struct.pack(">BBH", 2, 1, flags) + key + make_entry(ledger, entry, payload)
    return struct.pack(">I", len(body)) + body


def read_frame(ledger: int, entry: int, flags: int = 0, key: bytes | None = None) -> bytes:
    body = struct.pack(">BBHqq", 2, 2, flags, ledger, entry)
    if flags & FENCE:
        body += master_key() if key is None else key
    return struct.pack(">I", len(body)) + body


def batch_frame(
    ledger: int,
    entry: int,
    max_count: int,
    max_size: int = 1 << 20,
    *,
    request_id: int = 1,
    flags: int = 0,
    key: bytes | None = None,
) -> bytes:
    body = struct.pack(">BBHqqqiq", 2, 7, flags, ledger, entry, request_id, max_count, max_size)
    if flags & FENCE:
        body += master_key() if key is None else key
    return struct.pack(">I", len(body)) + body


@dataclass
class Answer:
    opcode: int
    code: int
    ledger: int
    entry: int
    body: bytes


class RawClient:
    def __init__(self, port: int, host: str = "127.0.0.1", timeout: float = 20.0) -> None:
        self.sock = socket.create_connection((host, port), timeout=timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.sock.close()

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def frame(self) -> bytes:
        """The next frame's body. Raises EOFError when the connection is closed."""
        while True:
            if len(self._buffer) >= 4:
                (length,) = struct.unpack_from(">I", self._buffer)
                if len(self._buffer) >= 4 + length:
                    body = self._buffer[4 : 4 + length]
                    self._buffer = self._buffer[4 + length :]
                    return body
            try:
                data = self.sock.recv(1 << 20)
            except ConnectionResetError:
                raise EOFError("connection reset") from None
            if not data:
                raise EOFError("connection closed")
            self._buffer += data

    def answer(self) -> Answer:
        body = self.frame()
        _version, opcode, _flags, code, ledger, entry = struct.unpack_from(">BBHiqq", body)
        return Answer(opcode, code, ledger, entry, body[24:])

    def add(
        self, ledger: int, entry: int, payload: bytes, flags: int = 0, key: bytes | None = None
    ) -> int:
        self.send(add_frame(ledger, entry, payload, flags, key))
        return self.answer().code

    def read(self, ledger: int, entry: int, flags: int = 0, key: bytes | None = None) -> Answer:
        self.send(read_frame(ledger, entry, flags, key))
        return self.answer()

    def fence(self, ledger: int, entry: int = -1, key: bytes | None = None) -> Answer:
        return self.read(ledger, entry, FENCE, key)
