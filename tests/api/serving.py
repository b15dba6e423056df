"""A server of the admin API on TCP in a thread of its own, with a small table of routes."""

from __future__ import annotations

import asyncio
import http.client
import json
import ssl
import threading
from collections.abc import AsyncGenerator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from bkbox.api.admin import server
from bkbox.api.admin.access import WithToken
from bkbox.api.admin.routes import (
    EVENT_STREAM,
    EventStream,
    Query,
    Request,
    Route,
    TextResponse,
)
from bkbox.api.admin.tcp_access import TcpAccess
from bkbox.base.token_bucket import TokenBucket
from bkbox.errors import JobRefusedError

TOKEN, READ_TOKEN = "t" * 32, "r" * 32


@dataclass(frozen=True, slots=True)
class Body:
    """What the route below takes."""

    count: int
    text: str = "none"


def table(done: list[str], asked_for: threading.Event) -> tuple[Route, ...]:
    async def read(asked: Request) -> object:
        return {"name": asked.place["name"], "query": dict(asked.query)}

    async def change(asked: Request) -> object:
        told = asked.body_as(Body)
        done.append(f"{told.count} {told.text}")
        return {"count": told.count}

    async def refuse(_asked: Request) -> object:
        raise JobRefusedError("not now")

    async def late(_asked: Request) -> object:
        raise TimeoutError

    async def defect(_asked: Request) -> object:
        raise ZeroDivisionError("of no use")

    async def cut(_asked: Request) -> object:
        raise ConnectionResetError("of a worker, not of the client")

    async def soon(_asked: Request) -> object:
        asked_for.set()
        await asyncio.sleep(0.2)
        return {}

    async def much(_asked: Request) -> object:
        return TextResponse("x" * 30_000_000)

    async def ticks() -> AsyncGenerator[str, None]:
        while True:
            yield "tick\n"
            await asyncio.sleep(0.02)

    async def stream(_asked: Request) -> object:
        return EventStream(ticks())

    async def broken(error: Exception) -> AsyncGenerator[str, None]:
        yield "tick\n"
        raise error

    async def broken_stream(_asked: Request) -> object:
        return EventStream(broken(ZeroDivisionError("of no use")))

    async def late_stream(_asked: Request) -> object:
        return EventStream(broken(TimeoutError()))

    return (
        Route("GET", "/stream", stream, media=EVENT_STREAM),
        Route("GET", "/broken-stream", broken_stream, media=EVENT_STREAM),
        Route("GET", "/late-stream", late_stream, media=EVENT_STREAM),
        Route(
            "GET",
            "/read/{name}",
            read,
            query=(Query("n", "integer", ""), Query("b", "boolean", "")),
        ),
        Route("POST", "/change", change, body=Body),
        Route("POST", "/refuse", refuse),
        Route("GET", "/late", late),
        Route("GET", "/soon", soon),
        Route("GET", "/much", much, media="text/plain"),
        Route("GET", "/defect", defect),
        Route("GET", "/cut", cut),
    )


def door(
    token: str = TOKEN, context: ssl.SSLContext | None = None, per_second: int = 10_000
) -> TcpAccess:
    access = WithToken(token.encode(), READ_TOKEN.encode(), frozenset({"bookie.example.com"}))
    return TcpAccess(access, context, TokenBucket(per_second, is_full=True))


class Serving:
    """``door``: the one that holds now; ``asked``: set when a request for /soon has begun."""

    def __init__(self, through: TcpAccess | None = None) -> None:
        self.door = through or door()
        self.done: list[str] = []
        self.asked = threading.Event()
        self.port = 0
        self._stop = asyncio.Event()
        self._up = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        running = await server.start_tcp(
            "127.0.0.1", 0, lambda: table(self.done, self.asked), lambda: self.door
        )
        self.port = running.address[1]
        self._up.set()
        await self._stop.wait()
        await running.close()

    def __enter__(self) -> Serving:
        self._thread.start()
        assert self._up.wait(60)
        return self

    def __exit__(self, *_how: object) -> None:
        if self._thread.is_alive():
            self.stop()

    def stop(self) -> None:
        """End the server; what is left of its connections ends with it."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)
        assert not self._thread.is_alive()

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        token: str | None = TOKEN,
        **headers: str,
    ) -> tuple[int, dict[str, Any]]:
        """Status and what the answer holds; ``_`` in the names of headers stands for ``-``."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request(method, path, body, sent)
            response = connection.getresponse()
            found = json.loads(response.read())
            assert isinstance(found, dict)
            if response.status != 200:
                assert response.headers["Content-Type"].startswith("application/problem+json")
                assert found["status"] == response.status
            return response.status, found
