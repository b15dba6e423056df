"""One Oxia server: its calls, over one channel of gRPC.

Each call is one attempt and raises what failures.py says. A write goes through WriteStream, one request per stream:
the unary Write is deprecated. The stream is not closed from here before its response: the server would not send it.
Source: public_rpc_server.go.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import grpc

from bkbox.errors import EncodingError, MetadataError
from bkbox.metadata.oxia import messages
from bkbox.metadata.oxia.failures import meaning_of
from bkbox.metadata.tree.nodes import LostReplyError
from bkbox.wire.protobuf import Message, Values, decode, encode

T = TypeVar("T")

ATTEMPT_S = 10.0
"""Time, in seconds, for one attempt of a call; a stream that is followed has none."""

CLOSE_WAIT_S = 0.5
CLOSE_PAUSE_S = 0.002

OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_send_message_length", 64 << 20),
)
"""Pings as of Oxia's own clients, whose servers refuse more frequent ones."""

TLS_SCHEME = "tls://"
"""What the address of a server with TLS may begin with."""


class Server:
    """See above; ``address``: HOST:PORT."""

    def __init__(
        self,
        address: str,
        credentials: grpc.ChannelCredentials | None,
        metadata: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.address = address
        self._metadata = tuple(metadata)
        self._calls: set[Any] = set()
        target = address.removeprefix(TLS_SCHEME)
        if credentials is None and address.startswith(TLS_SCHEME):
            credentials = grpc.ssl_channel_credentials()
        self._channel = (
            grpc.aio.insecure_channel(target, OPTIONS)
            if credentials is None
            else grpc.aio.secure_channel(target, credentials, OPTIONS)
        )

    async def close(self) -> None:
        """End all calls, too."""
        await self._channel.close()

    @property
    def calls(self) -> int:
        """The number of calls that have not ended."""
        return len(self._calls)

    def _noted(self, call: Any) -> Any:
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        return call

    # ---- records ----------------------------------------------------------------------------

    async def write(self, namespace: str, request: Values) -> Values:
        """A WriteResponse."""
        about = (("namespace", namespace), ("shard-id", str(request["shard"])))
        start = self._channel.stream_stream(
            f"/{messages.SERVICE}/WriteStream",
            request_serializer=_encoder(messages.WRITE_REQUEST),
            response_deserializer=bytes,
        )
        call = self._noted(start(metadata=(*self._metadata, *about), timeout=ATTEMPT_S))
        try:
            await call.write(request)
            response = await call.read()
            await call.done_writing()
        except grpc.aio.AioRpcError as error:
            raise meaning_of(self.address, error) from error
        except grpc.aio.UsageError as error:  # the call ended while the request was on its way
            raise await self._meaning_of_end(call) from error
        except BaseException:
            call.cancel()
            raise
        if response is grpc.aio.EOF:
            raise await self._meaning_of_end(call)
        return self._decoded(messages.WRITE_RESPONSE, response)

    async def read(self, request: Values) -> Values:
        """The GetResponse to a ReadRequest with one key."""
        gets: list[Values] = []
        async for response in self._stream(
            "Read", messages.READ_REQUEST, request, messages.READ_RESPONSE, ATTEMPT_S
        ):
            gets += response["gets"]
        if not gets:
            raise LostReplyError(f"Oxia server {self.address}: a read without a response")
        return gets[0]

    async def list_keys(self, request: Values) -> list[str]:
        """The keys of a ListRequest."""
        keys: list[str] = []
        async for response in self._stream(
            "List", messages.LIST_REQUEST, request, messages.LIST_RESPONSE, ATTEMPT_S
        ):
            keys += response["keys"]
        return keys

    async def range_scan(self, request: Values) -> list[Values]:
        """The GetResponses of a RangeScanRequest."""
        records: list[Values] = []
        async for response in self._stream(
            "RangeScan",
            messages.RANGE_SCAN_REQUEST,
            request,
            messages.RANGE_SCAN_RESPONSE,
            ATTEMPT_S,
        ):
            records += response["records"]
        return records

    # ---- sessions ---------------------------------------------------------------------------

    async def create_session(self, request: Values) -> int:
        response = await self._unary(
            "CreateSession",
            messages.CREATE_SESSION_REQUEST,
            request,
            messages.CREATE_SESSION_RESPONSE,
        )
        number: int = response.get("session_id", 0)
        return number

    async def keep_alive(self, request: Values, wait_s: float) -> None:
        await self._unary("KeepAlive", messages.SESSION, request, messages.EMPTY, wait_s)

    async def close_session(self, request: Values, wait_s: float) -> None:
        await self._unary("CloseSession", messages.SESSION, request, messages.EMPTY, wait_s)

    # ---- what is followed -------------------------------------------------------------------

    def shard_assignments(self, namespace: str) -> AsyncIterator[Values]:
        return self._stream(
            "GetShardAssignments",
            messages.SHARD_ASSIGNMENTS_REQUEST,
            {"namespace": namespace},
            messages.SHARD_ASSIGNMENTS,
        )

    def notifications(self, shard: int) -> AsyncIterator[Values]:
        """Batches from now on; the first is empty, and says that it has begun."""
        return self._stream(
            "GetNotifications",
            messages.NOTIFICATIONS_REQUEST,
            {"shard": shard},
            messages.NOTIFICATION_BATCH,
        )

    # ---- calls ------------------------------------------------------------------------------

    async def _unary(
        self,
        name: str,
        kind: Message,
        request: Values,
        response_kind: Message,
        wait_s: float = ATTEMPT_S,
    ) -> Values:
        start = self._channel.unary_unary(
            f"/{messages.SERVICE}/{name}",
            request_serializer=_encoder(kind),
            response_deserializer=bytes,
        )
        try:
            response = await self._noted(start(request, metadata=self._metadata, timeout=wait_s))
        except grpc.aio.AioRpcError as error:
            raise meaning_of(self.address, error) from error
        return self._decoded(response_kind, response)

    async def _stream(
        self,
        name: str,
        kind: Message,
        request: Values,
        response_kind: Message,
        wait_s: float | None = None,
    ) -> AsyncIterator[Values]:
        start = self._channel.unary_stream(
            f"/{messages.SERVICE}/{name}",
            request_serializer=_encoder(kind),
            response_deserializer=bytes,
        )
        call = self._noted(start(request, metadata=self._metadata, timeout=wait_s))
        try:
            async for response in call:
                yield self._decoded(response_kind, response)
        except grpc.aio.AioRpcError as error:
            raise meaning_of(self.address, error) from error
        finally:
            call.cancel()

    def _decoded(self, kind: Message, data: bytes) -> Values:
        try:
            return decode(kind, data)
        except EncodingError as error:
            raise LostReplyError(
                f"Oxia server {self.address}: a {kind.name} that cannot be decoded: {error}"
            ) from error

    async def _meaning_of_end(self, call: Any) -> MetadataError:
        """The error for a stream that the server ended without a response."""
        ended = grpc.aio.AioRpcError(
            await call.code(),
            await call.initial_metadata(),
            await call.trailing_metadata(),
            details=await call.details(),
        )
        return meaning_of(self.address, ended)


@asynccontextmanager
async def ending(calls: int) -> AsyncIterator[None]:
    """A block that ends so many calls; waits until gRPC has, too, at most CLOSE_WAIT_S: the loop may be closed next."""
    before = _ends_of_calls()
    yield
    with suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_WAIT_S):
            while len(before & _ends_of_calls()) > len(before) - calls:
                await asyncio.sleep(CLOSE_PAUSE_S)


def _ends_of_calls() -> set[asyncio.Task[Any]]:
    """The tasks of gRPC that wait for the ends of calls, one for each, those of other channels included."""
    name = "_AioCall._handle_status_once_received"
    return {
        task for task in asyncio.all_tasks() if getattr(task.get_coro(), "__qualname__", "") == name
    }


def _encoder(kind: Message) -> Any:
    return lambda values: encode(kind, values)
