"""TLS on a client's connection: what is read goes through it on the way in, what is sent on the way out.

OpenSSL works on memory, and this on the socket, which does not block. So a write that the socket took half of is not
OpenSSL's concern, and what was read at once is taken at once. Kernel/stream.py says what it needs of this.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping

_READ_BYTES = 64 * 1024
_WRITE_BYTES = 128 * 1024
"""What is encrypted before the socket is asked to take it."""


class TlsEnd:
    """The bookie's end. ``unsent``: bytes that are encrypted and not sent; ``pending``: see kernel/stream.py."""

    __slots__ = ("_in", "_out", "_rest", "_room", "_sock", "_tls", "pending", "unsent")

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self._sock = sock
        self._in = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=True)
        self._rest = memoryview(b"")
        self.pending = True
        self.unsent = 0

    def feed(self, data: bytes) -> None:
        """Bytes that were read from the socket before."""
        self._in.write(data)

    def handshake(self) -> bool:
        """Go on with it as far as what was fed goes; whether it is over. Raises ssl.SSLError."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        finally:
            self.flush()  # also an alert that says why
        return True

    def peer_certificate(self) -> Mapping[str, object] | None:
        """Of a client whose certificate was verified."""
        return self._tls.getpeercert()

    def version(self) -> str:
        return self._tls.version() or ""

    # ---- what the stream needs ----------------------------------------------------------------------

    def recv_into(self, view: memoryview) -> int:
        size = self._read(view)
        if size is None:
            data = self._sock.recv(_READ_BYTES)  # BlockingIOError where there is nothing
            if not data:
                self.pending = False
                return 0
            self._in.write(data)
            size = self._read(view)
            if size is None:
                raise BlockingIOError
        return size

    def _read(self, view: memoryview) -> int | None:
        """Bytes decrypted of what is here, 0 at the client's good-bye, None for nothing yet."""
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
            if not self._rest:
                self._rest = memoryview(self._out.read())
                if not self._rest:
                    self.unsent = 0
                    return
            try:
                self._rest = self._rest[self._sock.send(self._rest) :]
            except BlockingIOError:
                self.unsent = len(self._rest) + self._out.pending
                return
