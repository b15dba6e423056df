"""What the admin server answers over HTTP: ``GET /api/v1/status``, the status document as JSON; nothing else yet."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable

from aiohttp import web

from bkbox.admin.paths import STATUS_URL
from bkbox.admin.status import Status, to_json

StatusSource = Callable[[], Awaitable[Status]] | Callable[[], Status]


def runner_of(status: StatusSource) -> web.AppRunner:
    """Each request asks ``status`` anew. The runner has to be set up, and cleaned up."""

    async def answer_status(_request: web.Request) -> web.Response:
        result = status()
        document = await result if inspect.isawaitable(result) else result
        return web.json_response(to_json(document))

    app = web.Application()
    app.router.add_get(STATUS_URL, answer_status)
    return web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
