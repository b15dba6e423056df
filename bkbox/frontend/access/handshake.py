"""The handshake of one connection: TLS and authentication, before the client is let in.

Nothing that such a client sends reaches a disk. It may begin with TLS, or request it with START_TLS as Java's client
does, and it may authenticate. Any other request is refused as not authorised; where the protocol has no such response,
the connection is closed. Between START_TLS and TLS only the first AUTH may arrive in the clear, directly behind
START_TLS, as Java's client sends it; its response is delayed until TLS is up.

A TLS record begins with 0x16, which cannot begin a frame's length. So both ways to start TLS work on one port. Source:
AuthHandler.java, BookieRequestProcessor.java.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable

from bkbox.base.logs.rate_limited import RateLimited
from bkbox.base.text import quoted
from bkbox.errors import AuthenticationError, EncodingError, FrameError
from bkbox.frontend.access.access_policy import OFF, REQUIRED, AccessPolicy
from bkbox.frontend.access.tls_transport import TlsEnd
from bkbox.security import digest_md5
from bkbox.security.exchange import Examiner
from bkbox.security.roles import CERTIFICATE, SASL, TOKEN
from bkbox.security.tls import name_of
from bkbox.wire import v2, v3
from bkbox.wire.auth import AUTH_DISABLED_PLUGIN, AuthMessage
from bkbox.wire.codes import Code
from bkbox.wire.frames import LENGTH, PREFIX_BYTES

_LIMITED_LOG = RateLimited(logging.getLogger(__name__), time.monotonic)

_READ_BYTES = 64 * 1024
_FRAME_BYTES_MAX = 64 * 1024
"""The largest frame accepted before authentication."""
_FRAMES_MAX = 64
_START_TLS_BYTES_MAX = 256
_TLS_HANDSHAKE = b"\x16"

Refused = Callable[[str], None]
"""Called with a description of each refused request."""


class Handshake:
    """The handshake. ``name`` and ``plugin``: the client's identity and how it was proved; ``name`` is None until it
    is proved, and stays None where no proof is required."""

    def __init__(
        self, sock: socket.socket, peer: str, policy: AccessPolicy, refused: Refused
    ) -> None:
        self.sock = sock
        self.peer = peer
        self.name: str | None = None
        self.plugin = ""
        self.tls: TlsEnd | None = None
        self.policy = policy
        self._refused = refused
        self._data = bytearray()
        self._handshakes = False
        self._tls_requested = False
        self._delayed: list[bytes] = []
        self._examiner: Examiner | None = None
        self._tries_v3 = True
        self._frames = 0

    @property
    def unread(self) -> bytes:
        """Received bytes that are not processed yet, of a client that was let in."""
        return bytes(self._data)

    def ready(self) -> bool:
        """Reads and processes what has arrived; True once the client may be let in. Raises EOFError, OSError,
        FrameError and AuthenticationError: the connection must then be closed."""
        if self.tls is None or self._handshakes:
            data = self.sock.recv(_READ_BYTES)
            if not data:
                raise EOFError("the client has closed the connection")
            if self.tls is None:
                self._data += data
            else:
                self.tls.feed(data)
        else:
            self._decrypt()
        return self._go_on()

    def _go_on(self) -> bool:
        if self._handshakes and not self._shake_hands():
            return False
        while not self._may_come_in():
            if self._begins_tls():
                self._begin_tls()
                if not self._shake_hands():
                    return False
                continue
            body = self._next_frame()
            if body is None:
                return False
            self._frames += 1
            if self._frames > _FRAMES_MAX:
                raise FrameError(f"more than {_FRAMES_MAX} frames before authentication")
            self._handle(body)
        return True

    def _begins_tls(self) -> bool:
        """True if TLS begins here. Only START_TLS may precede TLS: anything earlier may come from another party."""
        first = not self._frames or self._tls_requested
        may = self.tls is None and self.policy.tls != OFF and first
        return may and self._data[:1] == _TLS_HANDSHAKE

    def _may_come_in(self) -> bool:
        policy = self.policy
        if policy.plugins:
            return self.name is not None
        if self.tls is not None:
            return True
        if policy.tls == REQUIRED or self._tls_requested or len(self._data) < PREFIX_BYTES:
            return False
        # A client that neither begins with TLS nor requests it is let in without.
        return self._data[:1] != _TLS_HANDSHAKE and not self._may_ask_for_tls()

    def _may_ask_for_tls(self) -> bool:
        """True if the first frame is START_TLS, or may still be, judged by the bytes received so far."""
        (size,) = LENGTH.unpack_from(self._data)
        if not 0 < size <= _START_TLS_BYTES_MAX:
            return False
        if len(self._data) < PREFIX_BYTES + size:
            return len(self._data) == PREFIX_BYTES or self._data[PREFIX_BYTES] >= v3.FIRST_BYTE_MIN
        try:
            request = v3.decode_request(bytes(self._data[PREFIX_BYTES : PREFIX_BYTES + size]))
        except (EncodingError, FrameError):
            return False
        return isinstance(request, v3.StartTlsRequest)

    def _next_frame(self) -> bytes | None:
        if len(self._data) < PREFIX_BYTES:
            return None
        (size,) = LENGTH.unpack_from(self._data)
        if not 0 < size <= _FRAME_BYTES_MAX:
            raise FrameError(f"frame of {size} bytes before authentication")
        end = PREFIX_BYTES + size
        if len(self._data) < end:
            return None
        body = bytes(self._data[PREFIX_BYTES:end])
        del self._data[:end]
        return body

    # ---- TLS ----------------------------------------------------------------------------------------

    def _begin_tls(self) -> None:
        assert self.policy.context is not None
        self.tls = TlsEnd(self.sock, self.policy.context)
        self.tls.feed(bytes(self._data))
        self._data.clear()
        self._handshakes = True

    def _shake_hands(self) -> bool:
        assert self.tls is not None
        if not self.tls.handshake():
            return False
        self._handshakes = False
        if CERTIFICATE in self.policy.plugins:
            self.name = name_of(self.tls.peer_certificate())
            self.plugin = CERTIFICATE
        delayed, self._delayed = self._delayed, []
        for response in delayed:
            self._send(response)
        self._decrypt()
        return True

    def _decrypt(self) -> None:
        """Reads the decrypted bytes that TLS has, possibly none."""
        assert self.tls is not None
        buffer = memoryview(bytearray(_READ_BYTES))
        try:
            while True:
                size = self.tls.recv_into(buffer)
                if not size:
                    raise EOFError("the client has closed the connection")
                self._data += buffer[:size]
                if not self.tls.pending:
                    return
                if len(self._data) > _FRAME_BYTES_MAX:
                    raise FrameError("too many bytes before authentication")
        except BlockingIOError:
            return

    # ---- frames -------------------------------------------------------------------------------------

    def _handle(self, body: bytes) -> None:
        if self._tries_v3:
            if body[0] >= v3.FIRST_BYTE_MIN:
                try:
                    request = v3.decode_request(body)
                except EncodingError:
                    pass
                else:
                    self._handle_v3(request)
                    return
            self._tries_v3 = False
        self._handle_v2(body)

    def _handle_v3(self, request: v3.Request) -> None:
        if isinstance(request, v3.StartTlsRequest):
            self._start_tls(request)
            return
        in_the_clear = self.tls is None and self.policy.tls == REQUIRED
        if isinstance(request, v3.AuthRequest) and (not in_the_clear or self._tls_requested):
            self._authenticate_v3(request)
            return
        self._refuse_in_between()
        self._refused(request.header.operation.name)
        self._send(v3.encode_response(v3.Refused(request.header, Code.EUA)))

    def _start_tls(self, request: v3.StartTlsRequest) -> None:
        if self.policy.tls == OFF or self.tls is not None or self._frames > 1:
            self._refuse_in_between()
            self._send(v3.encode_response(v3.Refused(request.header, Code.EBADREQ)))
            return
        self._send(v3.encode_response(v3.StartTlsResponse(request.header.txn_id)))
        self._tls_requested = True

    def _authenticate_v3(self, request: v3.AuthRequest) -> None:
        try:
            response = None if request.message is None else self._examine(request.message)
        except AuthenticationError:
            self._send(v3.encode_response(v3.Refused(request.header, Code.EUA)))
            raise
        code = Code.EUA if response is None else Code.EOK
        self._send(v3.encode_response(v3.AuthResponse(request.header, code, response)))

    def _handle_v2(self, body: bytes) -> None:
        header = v2.peek_request(body)
        if isinstance(header, v2.BadVersion):
            self._refuse_in_between()
            self._send(v2.encode_response(v2.bad_version_response(header)))
            return
        if header.opcode == v2.OP_AUTH:
            request = v2.decode_request(body)
            assert isinstance(request, v2.AuthRequest)
            if self.tls is None and self.policy.tls == REQUIRED and not self._tls_requested:
                raise AuthenticationError("authentication without TLS, which is required")
            response = self._examine(request.message)
            if response is None:
                raise AuthenticationError(
                    f"plugin {quoted(request.message.plugin[:80])} is not offered"
                )
            self._send(v2.encode_response(v2.AuthResponse(header.version, response)))
            return
        self._refuse_in_between()
        self._refused(f"opcode {header.opcode}")
        if header.opcode not in (v2.OP_ADD, v2.OP_READ):
            raise FrameError(f"opcode {header.opcode} before authentication")
        self._send(v2.refuse(body, Code.EUA))

    def _examine(self, message: AuthMessage) -> AuthMessage | None:
        """The response to an AUTH message; None for a plugin that is not offered. Raises AuthenticationError."""
        if not self.policy.plugins:
            return AuthMessage(AUTH_DISABLED_PLUGIN, b"")
        if self._examiner is None:
            self._examiner = self.policy.examiner(message.plugin)
            if self._examiner is None:
                return None
        if message.plugin != self._examiner.plugin:
            raise AuthenticationError("the plugin has changed in the middle of an exchange")
        try:
            step = self._examiner.step(message.payload)
        except AuthenticationError:
            raise
        except Exception as error:
            # Input of an unauthenticated client must not end the front-end, whatever a plugin has overlooked.
            _LIMITED_LOG.log(
                logging.ERROR, "plugin", "plugin %s failed", self._examiner.plugin, exc_info=error
            )
            raise AuthenticationError(f"plugin {self._examiner.plugin} failed") from error
        if step.identity is not None:
            self.name = step.identity
            self.plugin = SASL if self._examiner.plugin == digest_md5.PLUGIN else TOKEN
        return AuthMessage(message.plugin, step.payload)

    # ---- responses ------------------------------------------------------------------------------------

    def _refuse_in_between(self) -> None:
        if self._tls_requested and self.tls is None:
            raise FrameError("a request in the clear behind START_TLS")

    def _send(self, response: bytes) -> None:
        if self._tls_requested and self.tls is None:
            self._delayed.append(response)
            return
        if self.tls is None:
            sent_whole = self.sock.send(response) == len(response)
        else:
            sent_whole = (
                self.tls.send([memoryview(response)]) == len(response) and not self.tls.unsent
            )
        if not sent_whole:
            raise ConnectionAbortedError("the client reads no responses during its handshake")
