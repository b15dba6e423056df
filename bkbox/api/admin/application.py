"""The admin API over HTTP: the table of routes (routes.py) as an aiohttp application.

Every error response is a problem document (problems.py). A request is checked in this order: the caller (access.py),
the route, the caller's permission for it, the query and the body. Nothing is executed before all checks have passed.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import time
import traceback
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from aiohttp import http_exceptions, web

from bkbox.api.admin.access import Access, Caller
from bkbox.api.admin.problems import CONTENT_TYPE, HttpRefusedError, problem_of
from bkbox.api.admin.problems import to_json as problem_to_json
from bkbox.api.admin.routes import (
    EVENT_STREAM,
    EventStream,
    JsonResponse,
    Query,
    Request,
    Route,
    TextResponse,
    whole_number,
)
from bkbox.api.admin.socket_path import STATUS_URL
from bkbox.api.admin.status import Status, to_json
from bkbox.base.documents import ParseMode, from_document
from bkbox.base.logs.rate_limited import RateLimited
from bkbox.base.logs.refusals import Refusals
from bkbox.base.text import error_text, quoted
from bkbox.errors import (
    AccessDeniedError,
    BadRequestError,
    BkboxError,
    BugError,
    EncodingError,
    NoSuchRouteError,
)

log = logging.getLogger(__name__)

StatusSource = Callable[[], Awaitable[Status]] | Callable[[], Status]

BODY_BYTES_MAX = 64 * 1024
"""Maximum request body in bytes: requests carry commands, never data to be stored."""

_BODY_TIMEOUT_S = 10.0
_SEND_TIMEOUT_S = 10.0
"""Time-out, in seconds, for a client to receive a chunk of a stream; then its connection is closed."""
_IDLE_S = 30.0
"""Time-out, in seconds, for a connection without a complete request."""
_CONNECTIONS_MAX = 512

_CALLER = web.RequestKey("caller", Caller)
_CREDENTIALS = web.RequestKey("credentials", object)
_RUNNER = web.AppKey("runner", web.AppRunner)
_STREAMS: web.AppKey[set[asyncio.Task[Any]]] = web.AppKey("streams", set)
_BOOLEANS = {"true": True, "false": False}
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

_LAST = frozenset(
    {
        HTTPStatus.UNAUTHORIZED,  # each guess of a token costs a new connection
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.SERVICE_UNAVAILABLE,
    }
)
"""Statuses after which the connection is closed."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_MALFORMED = (http_exceptions.HttpProcessingError, web.RequestPayloadError)
"""aiohttp's errors for malformed HTTP: the head of a request, and its body."""


def status_route(status: StatusSource) -> Route:
    async def handle(_request: Request) -> object:
        found = status()
        return to_json(await found if inspect.isawaitable(found) else found)

    return Route("GET", STATUS_URL, handle, "The state of the bookie.", returns=Status)


def runner_of(
    routes: tuple[Route, ...], access: Callable[[], Access], let_in: Callable[[int], None]
) -> web.AppRunner:
    """The application's runner; the caller sets it up and cleans it up. ``access`` is called for each request, and
    ``let_in`` with the descriptor of each connection whose caller was authenticated."""
    refusals = Refusals(time.monotonic)
    limited_log = RateLimited(log, time.monotonic)
    app = web.Application(
        middlewares=[_authorization(access, refusals, limited_log, let_in)],
        client_max_size=BODY_BYTES_MAX,
    )
    app[_STREAMS] = set()
    app.on_shutdown.append(_end_streams)
    for route in routes:
        app.router.add_route(route.method, route.path, _handler(route, access, limited_log))
    logging.getLogger("aiohttp.server").addFilter(_without_traceback)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, keepalive_timeout=_IDLE_S)
    app[_RUNNER] = runner
    return runner


def _without_traceback(record: logging.LogRecord) -> bool:
    """Logging filter: malformed HTTP is logged in one short line without any of its content, which may contain tokens.
    For an error of aiohttp itself the line names its location."""
    error = record.exc_info[1] if record.exc_info else None
    if error is None:
        return True
    record.exc_info = record.exc_text = None
    what, record.args = record.getMessage(), None
    if isinstance(error, _MALFORMED):
        record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
        record.msg = f"admin API: {what}: malformed HTTP ({type(error).__name__})"
    else:
        record.msg = f"admin API: {what}: {type(error).__name__}{_place(error)}"
    return True


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def _authorization(
    access: Callable[[], Access],
    refusals: Refusals,
    limited_log: RateLimited,
    let_in: Callable[[int], None],
) -> Any:
    """Middleware around every request, also those without a route."""

    @web.middleware
    async def authorize(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            current = access()
            request[_CALLER] = _caller(current, request)
            request[_CREDENTIALS] = current.credentials
            if request.transport is not None:
                let_in(request.transport.get_extra_info("socket").fileno())
            return await handler(request)
        except web.HTTPException as error:
            return _problem(_refusal(request, error), error.headers.get("Allow"))
        except (BkboxError, TimeoutError) as error:
            if isinstance(error, HttpRefusedError) and error.error is AccessDeniedError:
                caller = request.remote or "the unix socket"
                refusals.note(
                    caller, caller, f"admin API, {error.status.value} {error.status.phrase}"
                )
            return _problem(error)
        except ConnectionError:
            raise  # the client has disconnected
        except _MALFORMED as error:
            text = f"the body is malformed ({type(error).__name__})"
            return _problem(BadRequestError(text), last=True)
        except Exception as error:  # noqa: BLE001 - a fault is told to the caller, and in the log
            text = "%s %s"
            limited_log.log(
                logging.ERROR, "fault", text, request.method, request.path[:200], exc_info=error
            )
            return _problem(BugError(f"{type(error).__name__}: {error_text(error)}"))

    return authorize


def _caller(access: Access, request: web.Request) -> Caller:
    transport = request.transport
    if transport is None:
        raise ConnectionResetError
    server = request.app[_RUNNER].server
    if server is not None and len(server.connections) > _CONNECTIONS_MAX:
        raise HttpRefusedError(
            HTTPStatus.SERVICE_UNAVAILABLE,
            f"{_CONNECTIONS_MAX} connections are open already: close some, or try again later",
        )
    return access.caller(transport.get_extra_info("socket"), request.headers)


def _refusal(request: web.Request, error: web.HTTPException) -> HttpRefusedError:
    """Converts an error response of aiohttp itself."""
    status = HTTPStatus(error.status)
    if status is HTTPStatus.NOT_FOUND:
        text = f"there is nothing at {request.path[:200]}; /openapi.json says what there is"
        return HttpRefusedError(status, text, NoSuchRouteError)
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods))
        text = f"{request.path[:200]} takes {allowed}, not {request.method[:20]}"
        return HttpRefusedError(status, text)
    if isinstance(error, web.HTTPRequestEntityTooLarge):
        return HttpRefusedError(status, f"the body is larger than {BODY_BYTES_MAX} bytes")
    return HttpRefusedError(status, error.reason or status.phrase)


def _problem(
    error: BkboxError | TimeoutError, allow: str | None = None, *, last: bool = False
) -> web.Response:
    found = problem_of(error)
    headers = dict(_HEADERS)
    if found.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if allow is not None:
        headers["Allow"] = allow
    response = web.Response(
        text=json.dumps(problem_to_json(found)),
        status=found.status,
        headers=headers,
        content_type=CONTENT_TYPE,
    )
    if last or found.status in _LAST:
        response.force_close()
    return response


def _handler(route: Route, access: Callable[[], Access], limited_log: RateLimited) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        caller = request[_CALLER]
        if route.changes and not caller.may_change:
            raise HttpRefusedError(
                HTTPStatus.FORBIDDEN,
                "this token may only read: use the one of the bookie's http_token_file",
                AccessDeniedError,
            )
        for name, text in request.match_info.items():
            _refuse_unprintable(text, f"path: {name}")
        query = _query(route, request)
        body = await _body(route, request)
        checked = Request(request.match_info, query, body, caller.name)
        if route.changes:
            kind = f"{route.method} {route.path}"  # one key for each route: a flood on one hides no other
            logged = caller.name, request.method, request.path
            limited_log.log(logging.INFO, kind, "%s asks: %s %s", *logged)
        credentials = request[_CREDENTIALS]
        response = await route.handler(checked)
        return await _sent(request, response, lambda: access().credentials == credentials)

    return handle


# ---- requests -----------------------------------------------------------------------------------------


def _query(route: Route, request: web.Request) -> dict[str, Any]:
    known = {parameter.name: parameter for parameter in route.query}
    found: dict[str, Any] = {}
    for name, text in request.query.items():
        if name not in known:
            allowed = ", ".join(known) or "none"
            raise BadRequestError(
                f"query: unknown parameter {quoted(name[:40])}; it takes {allowed}"
            )
        if name in found:
            raise BadRequestError(f"query: {name} is given twice")
        found[name] = _parameter(known[name], text)
    for name, parameter in known.items():
        if parameter.required and name not in found:
            raise BadRequestError(f"query: {name} is missing: {parameter.doc}")
    last = request.headers.get("Last-Event-ID")
    if last is not None and "after" in known and route.media == EVENT_STREAM:
        found["after"] = whole_number("Last-Event-ID", last)  # sent by a client that reconnects
    return found


def _parameter(parameter: Query, text: str) -> object:
    if parameter.kind == "integer":
        return whole_number(f"query: {parameter.name}", text)
    if parameter.kind == "boolean":
        if text.lower() not in {*_BOOLEANS, ""}:
            raise BadRequestError(
                f"query: {parameter.name} is {quoted(text[:40])}; it is true or false"
            )
        return _BOOLEANS.get(text.lower(), True)  # '?verbose' means '?verbose=true'
    _refuse_unprintable(text, f"query: {parameter.name}")
    return text


async def _body(route: Route, request: web.Request) -> object:
    try:
        async with asyncio.timeout(_BODY_TIMEOUT_S):
            raw = await request.read()
    except TimeoutError:
        raise HttpRefusedError(
            HTTPStatus.REQUEST_TIMEOUT, f"the body did not come within {_BODY_TIMEOUT_S:.0f} s"
        ) from None
    if route.body is None:
        if raw:
            raise BadRequestError("body: this takes none")
        return None
    return _understood(route, request, raw)


def _understood(route: Route, request: web.Request, raw: bytes) -> object:
    assert route.body is not None
    # Java's bookie ignores the content type, and callers of its paths send none.
    if raw and request.content_type != "application/json" and not route.java:
        raise HttpRefusedError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"the body has content type {quoted(request.content_type[:80])}; it has to be application/json",
        )
    try:
        found = json.loads(raw) if raw else {}
        _refuse_unprintable(found, "body")
    except RecursionError:
        raise BadRequestError("body: nested too deeply") from None
    except ValueError as error:
        raise BadRequestError(f"body: not JSON: {error}") from None
    try:
        return from_document(route.body, found, "body", ParseMode.STRICT)
    except EncodingError as error:
        raise BadRequestError(str(error)) from None


def _refuse_unprintable(value: object, where: str) -> None:
    """Rejects text that names nothing: with a NUL, or with half a surrogate pair, which JSON permits."""
    if isinstance(value, str):
        if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
            raise BadRequestError(f"{where}: {quoted(value[:40])} has a character that no text has")
    elif isinstance(value, dict):
        for name, item in value.items():
            _refuse_unprintable(name, f"{where}: a name")
            _refuse_unprintable(item, f"{where}.{name}")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            _refuse_unprintable(item, f"{where}[{number}]")


# ---- responses ----------------------------------------------------------------------------------------


async def _sent(
    request: web.Request, response: object, may_go_on: Callable[[], bool]
) -> web.StreamResponse:
    """Sends the response of a route. ``may_go_on``: returns True while the credentials with which the caller was
    authenticated are valid."""
    if isinstance(response, EventStream):
        return await _streamed(request, response, may_go_on)
    if isinstance(response, TextResponse):
        headers = _HEADERS | {"Content-Type": response.content_type}
        return web.Response(body=response.body.encode(), status=response.status, headers=headers)
    if isinstance(response, JsonResponse):
        return web.json_response(response.value, status=response.status, headers=_HEADERS)
    return web.json_response(response, headers=_HEADERS)


async def _streamed(
    request: web.Request, stream: EventStream, may_go_on: Callable[[], bool]
) -> web.StreamResponse:
    response = web.StreamResponse(headers=_HEADERS | {"Content-Type": stream.content_type})
    task = asyncio.current_task()
    assert task is not None
    streams = request.app[_STREAMS]
    streams.add(task)
    try:
        await response.prepare(request)
        async for chunk in stream.chunks:
            if not may_go_on():
                response.force_close()
                break
            async with asyncio.timeout(_SEND_TIMEOUT_S):
                await response.write(chunk.encode())
    except (TimeoutError, ConnectionError):
        response.force_close()
        if request.transport is not None:
            request.transport.abort()  # data not yet received is dropped
    finally:
        streams.discard(task)
        await stream.chunks.aclose()
    return response


async def _end_streams(app: web.Application) -> None:
    streams = app[_STREAMS]
    for task in [*streams]:
        task.cancel()
