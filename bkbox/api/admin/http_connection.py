"""One HTTP/1.1 connection of the admin API: h11 parses and frames, asyncio's streams move the bytes.

Requests are read one at a time: the next after the response to the last. A connection is closed after the response if
the request was malformed, or was not read to its end.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from itertools import chain
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import h11

from bkbox.api.admin.problems import HttpRefusedError
from bkbox.base.values import frozen_struct

HEAD_BYTES_MAX = 16 * 1024
"""Maximum of a request's first line and headers together, in bytes."""

_PIECE_BYTES = 64 * 1024
_SEND_TIMEOUT_S = 10.0
"""Time-out, in seconds, for a client to receive a piece of a response."""
_LINGER_S = 2.0
_LINGER_BYTES = 1 << 20
"""What is left of a request is received and dropped for so long, up to so much: a socket that is closed with unread
data is reset, and its client may lose the response."""

_UNREAD = frozenset({h11.IDLE, h11.SEND_BODY, h11.ERROR})
"""States of the client in which something of its request may be left to be read."""


class DisconnectedError(Exception):
    """The client has closed its connection, or receives nothing."""


class MalformedRequestError(HttpRefusedError):
    """Bytes that are no HTTP/1.1 request. The text has nothing of its content."""


@frozen_struct
class RequestHead:
    """The head of a request. ``path``, ``query``: percent-encoded, as sent. ``headers``: by name in lower case; of one
    that is repeated the first."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]


@frozen_struct
class Response:
    """A response. ``is_last``: the connection is closed after it."""

    status: HTTPStatus
    content_type: str
    body: bytes
    headers: Mapping[str, str] = MappingProxyType({})
    is_last: bool = False


class HttpConnection:
    """The connection of one client. What receives or sends raises DisconnectedError."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._is_head = False
        self._lingers = False

    @property
    def socket(self) -> socket.socket:
        found: socket.socket = self._writer.get_extra_info("socket")
        return found

    @property
    def peer(self) -> str:
        """The client's address; empty over a unix socket."""
        name = self._writer.get_extra_info("peername")
        return str(name[0]) if isinstance(name, tuple) else ""

    # ---- requests -------------------------------------------------------------------------------------

    async def next_request(self) -> RequestHead | None:
        """The head of the next request; None after the last. Raises MalformedRequestError."""
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        if self._http.our_state is not h11.IDLE:
            return None
        event = await self._next_event()
        if not isinstance(event, h11.Request):
            return None
        if len(event.target) + sum(map(len, chain(*event.headers))) > HEAD_BYTES_MAX:
            raise _malformed(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        self._is_head = event.method == b"HEAD"
        if event.http_version not in (b"1.0", b"1.1"):
            raise _malformed(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
        return _head_of(event)

    async def body(self, bytes_max: int) -> bytes:
        """The body of the request. Raises HttpRefusedError for a larger one, MalformedRequestError."""
        found = bytearray()
        while isinstance(event := await self._next_event(), h11.Data):
            found += event.data
            if len(found) > bytes_max:
                raise HttpRefusedError(
                    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                    f"the body is larger than {bytes_max} bytes",
                )
        return bytes(found)

    async def _next_event(self) -> Any:
        while (event := self._parse()) is h11.NEED_DATA:
            if self._http.they_are_waiting_for_100_continue:
                go_on = h11.InformationalResponse(status_code=HTTPStatus.CONTINUE, headers=[])
                await self._write(self._http.send(go_on))
            self._http.receive_data(await self._read())
        return event

    async def _read(self) -> bytes:
        try:
            return await self._reader.read(_PIECE_BYTES)
        except OSError as error:  # covers ssl.SSLError
            raise DisconnectedError from error

    def _parse(self) -> Any:
        try:
            return self._http.next_event()
        except h11.RemoteProtocolError as error:
            raise _malformed(HTTPStatus(error.error_status_hint)) from None

    def _is_read(self) -> bool:
        """True if the whole request is read; what has arrived of it is dropped."""
        with suppress(MalformedRequestError):
            while self._http.their_state is h11.SEND_BODY and self._parse() is not h11.NEED_DATA:
                pass
        return self._http.their_state not in _UNREAD

    # ---- responses ------------------------------------------------------------------------------------

    async def send(self, response: Response) -> None:
        """Sends a whole response."""
        length = {"Content-Length": str(len(response.body))}
        data = self._response_head(response, length)
        if not self._is_head:
            data += self._http.send(h11.Data(data=response.body))
        await self._write(data + self._http.send(h11.EndOfMessage()))

    async def begin_stream(self, response: Response) -> None:
        """Sends the head of a response; its body comes in chunks."""
        await self._write(self._response_head(response, {}))

    async def send_chunk(self, chunk: bytes) -> None:
        """Sends a part of the body of the response that was begun."""
        await self._write(self._http.send(h11.Data(data=chunk)))

    async def end_stream(self) -> None:
        """Ends the response that was begun."""
        await self._write(self._http.send(h11.EndOfMessage()))

    def _response_head(self, response: Response, framing: Mapping[str, str]) -> bytes:
        self._lingers = not self._is_read()
        headers = {
            "Date": time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime()),
            "Content-Type": response.content_type,
            **response.headers,
            **framing,
        }
        if response.is_last or self._lingers:
            headers["Connection"] = "close"
        status = response.status
        begun = h11.Response(
            status_code=status, headers=[*headers.items()], reason=status.phrase.encode()
        )
        return self._http.send(begun)

    async def _write(self, data: bytes) -> None:
        for start in range(0, len(data), _PIECE_BYTES):
            self._writer.write(data[start : start + _PIECE_BYTES])
            try:
                async with asyncio.timeout(_SEND_TIMEOUT_S):
                    await self._writer.drain()
            except OSError as error:  # covers ssl.SSLError, TimeoutError
                raise DisconnectedError from error

    # ---- its end --------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Closes the connection when what was sent is received, or has not been for a time."""
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_LINGER_S):
                if self._lingers:
                    await self._linger()
                self._writer.close()
                await self._writer.wait_closed()
        self.abort()

    async def _linger(self) -> None:
        if self._writer.can_write_eof():
            self._writer.write_eof()
        left = _LINGER_BYTES
        while left > 0 and (dropped := await self._reader.read(_PIECE_BYTES)):
            left -= len(dropped)

    def abort(self) -> None:
        """Closes the connection now; what was not yet received is dropped."""
        self._writer.transport.abort()


def _head_of(request: h11.Request) -> RequestHead:
    headers: dict[str, str] = {}
    for name, value in request.headers:
        headers.setdefault(name.decode("ascii"), value.decode("utf-8", "surrogateescape"))
    path, _, query = request.target.decode("ascii").partition("?")
    if "://" in path:  # as a proxy is asked; then the host is the one in it
        try:
            target = urlsplit(request.target.decode("ascii"))
        except ValueError:
            raise _malformed(HTTPStatus.BAD_REQUEST) from None
        headers["host"] = target.netloc
        path, query = target.path or "/", target.query
    return RequestHead(request.method.decode("ascii"), path, query, headers)


def _malformed(status: HTTPStatus) -> MalformedRequestError:
    if status is HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
        return MalformedRequestError(status, f"the head is larger than {HEAD_BYTES_MAX} bytes")
    return MalformedRequestError(status, "this is no request of HTTP/1.1")
