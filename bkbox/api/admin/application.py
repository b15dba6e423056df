"""The admin API over HTTP: answers the requests of each connection by the table of routes (routes.py).

Every error response is a problem document (problems.py). A request is checked in this order: the caller (access.py),
the route, the caller's permission for it, the path, the query and the body. Nothing is executed before all checks have
passed.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from bkbox.api.admin.access import Access
from bkbox.api.admin.http_connection import (
    DisconnectedError,
    HttpConnection,
    MalformedRequestError,
    RequestHead,
    Response,
)
from bkbox.api.admin.problems import CONTENT_TYPE, HttpRefusedError, problem_of
from bkbox.api.admin.problems import to_json as problem_to_json
from bkbox.api.admin.request_checks import body_of, check_path, query_of
from bkbox.api.admin.routes import EventStream, JsonResponse, Request, Route, TextResponse
from bkbox.api.admin.routing import MethodNotAllowedError, Router
from bkbox.api.admin.socket_path import STATUS_URL
from bkbox.api.admin.status import Status, to_json
from bkbox.base.logs.rate_limited import RateLimited
from bkbox.base.logs.refusals import Refusals
from bkbox.base.text import error_text
from bkbox.errors import AccessDeniedError, BkboxError, BugError

log = logging.getLogger(__name__)

StatusSource = Callable[[], Awaitable[Status]] | Callable[[], Status]

BODY_BYTES_MAX = 64 * 1024
"""Maximum request body in bytes: requests carry commands, never data to be stored."""

_BODY_TIMEOUT_S = 10.0
_IDLE_S = 30.0
"""Time-out, in seconds, for the head of a connection's next request."""
_CONNECTIONS_MAX = 512
_END_S = 1.0
"""Time, in seconds, that requests have to end before the application is closed."""

_JSON = "application/json; charset=utf-8"
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

_LAST = frozenset(
    {
        HTTPStatus.UNAUTHORIZED,  # each guess of a token costs a new connection
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.SERVICE_UNAVAILABLE,
    }
)
"""Statuses of problems after which the connection is closed."""


def status_route(status: StatusSource) -> Route:
    async def handle(_request: Request) -> object:
        found = status()
        return to_json(await found if inspect.isawaitable(found) else found)

    return Route("GET", STATUS_URL, handle, "The state of the bookie.", returns=Status)


class Application:
    """The routes behind one listener. ``access`` is called for each request, and ``let_in`` with the descriptor of each
    connection whose caller was authenticated."""

    def __init__(
        self,
        routes: tuple[Route, ...],
        access: Callable[[], Access],
        let_in: Callable[[int], None],
    ) -> None:
        self._router = Router(routes)
        self._access = access
        self._let_in = let_in
        self._refusals = Refusals(time.monotonic)
        self._log = RateLimited(log, time.monotonic)
        self._open: set[asyncio.Task[None]] = set()
        self._busy: set[asyncio.Task[None]] = set()
        """Connections with a request whose response will end."""
        self._is_closing = False

    async def serve(self, connection: HttpConnection) -> None:
        """Answers the requests of a connection until it ends."""
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            while not self._is_closing and await self._answer_next(connection, task):
                pass
            await connection.close()
        except DisconnectedError:
            log.debug("a client of the admin API has disconnected, or receives nothing")
        except Exception as error:  # noqa: BLE001 - after the head of a response nothing else can be sent
            self._log.log(logging.ERROR, "fault", "a response ended early", exc_info=error)
        finally:
            self._open.discard(task)
            connection.abort()

    async def close(self) -> None:
        """Ends all connections; those with a request have _END_S seconds for it."""
        self._is_closing = True
        for task in self._open - self._busy:
            task.cancel()
        if self._busy:
            await asyncio.wait(self._busy, timeout=_END_S)
        left = [*self._open]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _answer_next(self, connection: HttpConnection, task: asyncio.Task[None]) -> bool:
        """Answers one request. Returns False if none came. Raises DisconnectedError."""
        try:
            async with asyncio.timeout(_IDLE_S):
                head = await connection.next_request()
        except TimeoutError:
            return False
        except MalformedRequestError as error:
            await connection.send(self._malformed_response(error))
            return False
        if head is None:
            return False
        self._busy.add(task)
        try:
            response = await self._response_to(head, connection)
            if isinstance(response, Response):
                await connection.send(response)
                return True
        finally:
            self._busy.discard(task)
        await _stream(connection, *response)
        return True

    async def _response_to(
        self, head: RequestHead, connection: HttpConnection
    ) -> Response | tuple[EventStream, Callable[[], bool]]:
        """The response to a request; or a stream, with what tells if it may go on."""
        try:
            return await self._handle(head, connection)
        except DisconnectedError:
            raise
        except MalformedRequestError as error:
            return self._malformed_response(error)
        except (BkboxError, TimeoutError) as error:
            if isinstance(error, HttpRefusedError) and error.error is AccessDeniedError:
                caller = connection.peer or "the unix socket"
                self._refusals.note(
                    caller, caller, f"admin API, {error.status.value} {error.status.phrase}"
                )
            return _problem(error)
        except Exception as error:  # noqa: BLE001 - a fault is told to the caller, and in the log
            self._log.log(
                logging.ERROR, "fault", "%s %s", head.method, head.path[:200], exc_info=error
            )
            return _problem(BugError(f"{type(error).__name__}: {error_text(error)}"))

    async def _handle(
        self, head: RequestHead, connection: HttpConnection
    ) -> Response | tuple[EventStream, Callable[[], bool]]:
        access = self._access()
        if len(self._open) > _CONNECTIONS_MAX:
            raise HttpRefusedError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"{_CONNECTIONS_MAX} connections are open already: close some, or try again later",
            )
        try:
            caller = access.caller(connection.socket, head.headers)
        except OSError:
            raise DisconnectedError from None
        self._let_in(connection.socket.fileno())
        route, place = self._router.find(head.method, head.path)
        if route.changes and not caller.may_change:
            raise HttpRefusedError(
                HTTPStatus.FORBIDDEN,
                "this token may only read: use the one of the bookie's http_token_file",
                AccessDeniedError,
            )
        check_path(place)
        query = query_of(route, head)
        body = body_of(route, head, await _raw_body(connection))
        if route.changes:
            kind = f"{route.method} {route.path}"  # one key for each route: a flood on one hides no other
            asked = caller.name, head.method, head.path
            self._log.log(logging.INFO, kind, "%s asks: %s %s", *asked)
        found = await route.handler(Request(place, query, body, caller.name))
        if isinstance(found, EventStream):
            return found, lambda: self._access().credentials == access.credentials
        return _response(found)

    def _malformed_response(self, error: MalformedRequestError) -> Response:
        self._log.log(logging.WARNING, "malformed", "malformed HTTP (%s)", error.status.phrase)
        return _problem(error, is_last=True)


async def _raw_body(connection: HttpConnection) -> bytes:
    try:
        async with asyncio.timeout(_BODY_TIMEOUT_S):
            return await connection.body(BODY_BYTES_MAX)
    except TimeoutError:
        raise HttpRefusedError(
            HTTPStatus.REQUEST_TIMEOUT, f"the body did not come within {_BODY_TIMEOUT_S:.0f} s"
        ) from None


def _response(found: object) -> Response:
    """The response of a route over HTTP."""
    if isinstance(found, TextResponse):
        return _ok(found.body.encode(), found.content_type, found.status)
    if isinstance(found, JsonResponse):
        return _ok(json.dumps(found.value).encode(), _JSON, found.status)
    return _ok(json.dumps(found).encode(), _JSON)


def _ok(body: bytes, content_type: str, status: int = HTTPStatus.OK) -> Response:
    return Response(HTTPStatus(status), content_type, body, _HEADERS)


def _problem(error: BkboxError | TimeoutError, *, is_last: bool = False) -> Response:
    found = problem_of(error)
    headers = dict(_HEADERS)
    if found.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, MethodNotAllowedError):
        headers["Allow"] = error.allowed
    body = json.dumps(problem_to_json(found)).encode()
    status = HTTPStatus(found.status)
    content_type = f"{CONTENT_TYPE}; charset=utf-8"
    return Response(status, content_type, body, headers, is_last or status in _LAST)


async def _stream(
    connection: HttpConnection, stream: EventStream, may_go_on: Callable[[], bool]
) -> None:
    """Sends a stream until it ends, the client disconnects or receives nothing, or the credentials change with which it
    was authenticated. Raises DisconnectedError."""
    try:
        await connection.begin_stream(
            Response(HTTPStatus.OK, stream.content_type, b"", _HEADERS, is_last=True)
        )
        async for chunk in stream.chunks:
            if not may_go_on():
                break
            await connection.send_chunk(chunk.encode())
        await connection.end_stream()
    finally:
        await stream.chunks.aclose()
