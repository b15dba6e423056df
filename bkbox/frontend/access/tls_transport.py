"""TLS on a client's connection: decrypts what is read, encrypts what is sent.

OpenSSL works on memory buffers; this class does the I/O on the non-blocking socket. So a partial write is not
OpenSSL's concern, and all that a read returned is decrypted at once. frontend/loop/connection.py defines the interface.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping

_READ_BYTES = 64 * 1024
_WRITE_BYTES = 128 * 1024
"""Bytes encrypted before the next socket write."""


class TlsEnd:
    """The bookie's end. ``unsent``: encrypted bytes that are not sent yet; ``pending``: see
    frontend/loop/connection.py."""

    __slots__ = ("_in", "_out", "_sock", "_tls", "_unsent_output", "pending", "unsent")

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self._sock = sock
        self._in = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=True)
        self._unsent_output = memoryview(b"")
        self.pending = True
        self.unsent = 0

    def feed(self, data: bytes) -> None:
        """Adds bytes that were already read from the socket."""
        self._in.write(data)

    def handshake(self) -> bool:
        """Continues the handshake with the bytes fed so far; True once it is complete. Raises ssl.SSLError."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        finally:
            self.flush()  # also sends an alert with the reason
        return True

    def peer_certificate(self) -> Mapping[str, object] | None:
        """The client's certificate, if it was verified."""
        return self._tls.getpeercert()

    def version(self) -> str:
        return self._tls.version() or ""

    # ---- the stream's interface ------------------------------------------------------------------

    def recv_into(self, view: memoryview) -> int:
        size = self._read(view)
        if size is None:
            data = self._sock.recv(_READ_BYTES)  # BlockingIOError if there is no data
            if not data:
                self.pending = False
                return 0
            self._in.write(data)
            size = self._read(view)
            if size is None:
                raise BlockingIOError
        return size

    def _read(self, view: memoryview) -> int | None:
        """Decrypts what is buffered. Returns the number of bytes, 0 at the client's close_notify, None if there are
        none yet."""
        filled = 0
        try:
            while filled < len(view):
                size = self._tls.read(len(view) - filled, view[filled:])
                if not size:
                    break
                filled += int(size)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.pending = False
            return filled
        finally:
            if self._out.pending:
                self.flush()  # a new key, or an alert
        self.pending = filled == len(view)
        return filled or None

    def send(self, parts: list[memoryview]) -> int:
        self.flush()
        if self.unsent:
            raise BlockingIOError
        data = parts[0] if len(parts) == 1 else memoryview(b"".join(parts))
        sent = 0
        while sent < len(data) and not self.unsent:
            sent += self._tls.write(data[sent : sent + _WRITE_BYTES])
            self.flush()
        return sent

    def flush(self) -> None:
        while True:
            if not self._unsent_output:
                self._unsent_output = memoryview(self._out.read())
                if not self._unsent_output:
                    self.unsent = 0
                    return
            try:
                self._unsent_output = self._unsent_output[self._sock.send(self._unsent_output) :]
            except BlockingIOError:
                self.unsent = len(self._unsent_output) + self._out.pending
                return
