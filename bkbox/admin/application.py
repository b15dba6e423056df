"""What the admin server answers over HTTP: ``GET /api/v1/status``, the status document as JSON, and its other routes.

A route that raises a BkboxError is answered with status 409 and the error's type and text.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from aiohttp import web

from bkbox.admin.paths import STATUS_URL
from bkbox.admin.routes import Answer, Asked, Route
from bkbox.admin.status import Status, to_json
from bkbox.errors import BkboxError, EncodingError
from bkbox.ipc.channel import refusal

StatusSource = Callable[[], Awaitable[Status]] | Callable[[], Status]

ERROR_STATUS = HTTPStatus.CONFLICT
"""Of an answer that is an error of bkbox's: its type and text."""


def runner_of(status: StatusSource, routes: tuple[Route, ...]) -> web.AppRunner:
    """Each request asks ``status`` anew. The runner has to be set up, and cleaned up."""

    async def answer_status(_asked: Asked) -> object:
        result = status()
        return to_json(await result if inspect.isawaitable(result) else result)

    app = web.Application()
    for route in (Route("GET", STATUS_URL, answer_status), *routes):
        app.router.add_route(route.method, route.path, _handler(route.answer))
    return web.AppRunner(app, access_log=None, shutdown_timeout=1.0)


def _handler(answer: Answer) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        try:
            asked = Asked(request.match_info, _values(await request.read()))
            return web.json_response(await answer(asked))
        except BkboxError as error:
            said = refusal(error)
            return web.json_response({"error": said.error, "text": said.text}, status=ERROR_STATUS)

    return handle


def _values(body: bytes) -> dict[str, object]:
    try:
        found = json.loads(body) if body else {}
    except ValueError as error:
        raise EncodingError(f"the body of the request is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise EncodingError("the body of the request is not a JSON object")
    return found
