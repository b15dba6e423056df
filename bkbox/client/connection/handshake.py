"""The handshake before the first request on a connection to a bookie: TLS and authentication.

A client that is configured for TLS or authentication never goes without: it sends no request to a bookie that offers
no TLS, shows the wrong certificate or accepts every client. Source: PerChannelBookieClient.java.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

from bkbox.base.text import quoted, reason_of
from bkbox.client.connection.framed_connection import FramedConnection
from bkbox.client.options import ClientOptions
from bkbox.errors import (
    AuthenticationError,
    BootError,
    ConfigError,
    EncodingError,
    FrameError,
)
from bkbox.security import digest_md5, tokens
from bkbox.security.exchange import Applicant
from bkbox.security.secret_files import read_secret, read_word
from bkbox.wire import v3
from bkbox.wire.auth import AuthMessage
from bkbox.wire.codes import Code
from bkbox.wire.frames import PREFIX_BYTES, frame_end
from bkbox.wire.metadata.service_info import HostPort
from bkbox.wire.v3_format import Operation

if TYPE_CHECKING:
    import ssl

_FRAME_BYTES_MAX = 64 * 1024
_STEPS_MAX = 8


class ClientHandshake:
    """The handshake of one client's connections."""

    def __init__(self, options: ClientOptions) -> None:
        """Read the files that the options name. Raises ConfigError."""
        self._tls = options.tls
        self._auth = options.auth
        self._user = options.auth_user
        self._context: ssl.SSLContext | None = None
        self._secret = ""
        try:
            if options.tls != "off":
                self._context = tls_context(options)
            if options.auth != "none":
                assert options.auth_secret_file is not None
                self._secret = read_word(Path(options.auth_secret_file), "auth_secret_file")
        except BootError as error:
            raise ConfigError([str(error)]) from None

    async def connect(
        self, address: HostPort, new_stream: Callable[[], FramedConnection]
    ) -> FramedConnection:
        """A connection that is ready for requests. Raises AuthenticationError and OSError, ssl.SSLError included."""
        loop = asyncio.get_running_loop()
        first = _First()
        direct = self._tls == "direct"
        transport: asyncio.Transport
        transport, _ = await loop.create_connection(
            lambda: first,
            address.host,
            address.port,
            ssl=self._context if direct else None,
            server_hostname=address.host if direct else None,
        )
        try:
            if self._tls == "start":
                assert self._context is not None
                await self._ask_for_tls(first)
                transport = first.reset(
                    await loop.start_tls(
                        transport, first, self._context, server_hostname=address.host
                    )
                )
            if self._auth != "none":
                await self._authenticate(first, self._applicant())
            first.end()
        except BaseException:
            transport.abort()
            raise
        stream = new_stream()
        transport.set_protocol(stream)
        stream.connection_made(transport)
        return stream

    async def _ask_for_tls(self, first: _First) -> None:
        request = v3.StartTlsRequest(v3.Header(Operation.START_TLS, 0))
        response = await first.ask(request)
        if not isinstance(response, v3.StartTlsResponse) or first.unparsed:
            raise AuthenticationError("the bookie offers no TLS, which this client needs")

    def _applicant(self) -> Applicant:
        nonce = secrets.token_hex(16)
        if self._auth == "sasl":
            return digest_md5.Client(self._user, self._secret, nonce)
        return tokens.Client(self._user, self._secret, nonce)

    async def _authenticate(self, first: _First, applicant: Applicant) -> None:
        payload: bytes | None = applicant.begin()
        for number in range(1, _STEPS_MAX):
            assert payload is not None
            header = v3.Header(Operation.AUTH, number)
            response = await first.ask(
                v3.AuthRequest(header, AuthMessage(applicant.plugin, payload))
            )
            if (
                isinstance(response, v3.Refused)
                and response.header.operation is Operation.START_TLS
            ):
                # Over TLS, Java's bookie complains that no client has authenticated before. It goes on.
                response = await first.response()
            if not isinstance(response, v3.AuthResponse) or response.code is not Code.EOK:
                raise AuthenticationError(f"the bookie does not let {quoted(self._user)} in")
            if response.message is None or response.message.plugin != applicant.plugin:
                raise AuthenticationError(
                    f"the bookie does not authenticate by {self._auth}: it may not be what it says it is"
                )
            payload = applicant.step(response.message.payload)
            if payload is None:
                return
        raise AuthenticationError("the bookie does not come to an end of the authentication")


def tls_context(options: ClientOptions) -> ssl.SSLContext:
    """The TLS context of the files that the options name. Raises BootError."""
    from bkbox.security.tls import client_context  # OpenSSL is loaded only when it is used

    def text(path: str | None) -> str | None:
        if path is None:
            return None
        try:
            return Path(path).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise BootError(f"{path} cannot be read: {reason_of(error)}") from None

    key = None
    if options.tls_key_file is not None:
        key = read_secret(Path(options.tls_key_file), "tls_key_file").decode("latin-1")
    return client_context(
        text(options.tls_ca_file),
        text(options.tls_certificate_file),
        key,
        check_host_name=options.tls_check_host_name,
    )


class _First(asyncio.Protocol):
    """The connection until its FramedConnection takes over: one request at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.unparsed = bytearray()
        self._heard = asyncio.Event()
        self._lost = False

    def reset(self, transport: asyncio.Transport | None) -> asyncio.Transport:
        """Go on over TLS. Raises ConnectionResetError."""
        if transport is None:
            raise ConnectionResetError("the connection was lost while TLS began")
        self.transport = transport
        return transport

    def end(self) -> None:
        """End the handshake. Raises AuthenticationError if unread bytes arrived."""
        if self.unparsed:
            raise AuthenticationError("the bookie says more than it was asked")

    async def ask(self, request: v3.Request) -> v3.Response:
        """The response to a request. Raises AuthenticationError for a malformed one, and ConnectionResetError."""
        assert self.transport is not None
        self.transport.write(v3.encode_request(request))
        return await self.response()

    async def response(self) -> v3.Response:
        """The next response; raises as ``ask``."""
        try:
            while (end := frame_end(self.unparsed, 0, _FRAME_BYTES_MAX)) is None or end > len(
                self.unparsed
            ):
                if self._lost:
                    raise ConnectionResetError("the bookie has closed the connection")
                self._heard.clear()
                await self._heard.wait()
            body = bytes(self.unparsed[PREFIX_BYTES:end])
            del self.unparsed[:end]
            return v3.decode_response(body)
        except (FrameError, EncodingError) as error:
            raise AuthenticationError(f"a response that cannot be decoded: {error}") from None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.unparsed += data
        self._heard.set()

    def connection_lost(self, _exception: Exception | None) -> None:
        self._lost = True
        self._heard.set()
