"""Events of the admin API: what changes, told to all who listen, as server-sent events (WHATWG HTML, section 9.2).

Nobody looks while nobody listens. Each event has a number; who comes back and says which one he saw last gets those
that he has missed, as far as they are remembered.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from http import HTTPStatus

from bkbox.api.admin.problems import HttpRefusedError
from bkbox.api.admin.status import Status
from bkbox.api.admin.status_diff import changes, changes_of_jobs
from bkbox.base.words import error_text
from bkbox.errors import BkboxError
from bkbox.jobs.job import Job

log = logging.getLogger(__name__)

LISTENERS_MAX = 256
REMEMBERED_MAX = 1_000
_LOOK_EVERY_S = 1.0
_ALIVE_EVERY_S = 10.0
_RETRY_MS = 2_000
_UNTAKEN_MAX = 1_000
"""A listener that is so many events behind has missed the oldest of them."""

Look = Callable[[], Awaitable[tuple[Status, Sequence[Job]]]]


@dataclass(frozen=True, slots=True)
class Event:
    """``severity``: info, warning or error."""

    number: int
    ms: int
    severity: str
    subject: str
    text: str


class Events:
    """``look``: the document and all jobs, as they are now."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._before: tuple[Status, Sequence[Job]] | None = None
        self._remembered: deque[Event] = deque(maxlen=REMEMBERED_MAX)
        self._number = 0
        self._listeners: set[_Listener] = set()
        self._watching: asyncio.Task[None] | None = None

    def listen(self, last: int | None) -> AsyncGenerator[str, None]:
        """The stream of one listener, who saw ``last``. Raises HttpRefusedError where there are too many."""
        if len(self._listeners) >= LISTENERS_MAX:
            raise HttpRefusedError(
                HTTPStatus.SERVICE_UNAVAILABLE, f"{LISTENERS_MAX} listen to events already"
            )
        return self._stream(last)

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)

    async def _stream(self, last: int | None) -> AsyncGenerator[str, None]:
        missed = [] if last is None else [each for each in self._remembered if each.number > last]
        listener = _Listener(missed)
        self._listeners.add(listener)
        if self._watching is None or self._watching.done():
            self._watching = asyncio.ensure_future(self._watch())
        try:
            yield f"retry: {_RETRY_MS}\n\n"
            while True:
                yield await listener.next()
        finally:
            self._listeners.discard(listener)

    async def _watch(self) -> None:
        """As long as somebody listens."""
        try:
            while self._listeners:
                try:
                    self._tell(await self._look())
                except (BkboxError, OSError) as error:
                    log.warning("events: the bookie cannot be looked at: %s", error_text(error))
                await asyncio.sleep(_LOOK_EVERY_S)
        finally:
            self._before = None  # what happens unseen is no news for the next who comes

    def _tell(self, found: tuple[Status, Sequence[Job]]) -> None:
        status, jobs = found
        old, old_jobs = (None, None) if self._before is None else self._before
        self._before = found
        if old is None:
            return
        for change in (*changes(old, status), *changes_of_jobs(old_jobs, jobs)):
            self._number += 1
            severity = change.severity.name.lower()
            event = Event(self._number, status.taken_ms, severity, change.subject, change.text)
            self._remembered.append(event)
            for listener in self._listeners:
                listener.put(event)


class _Listener:
    """What one of them has not been sent yet."""

    def __init__(self, missed: Sequence[Event]) -> None:
        self._untaken: deque[Event] = deque(missed, maxlen=_UNTAKEN_MAX)
        self._there = asyncio.Event()
        if missed:
            self._there.set()

    def put(self, event: Event) -> None:
        self._untaken.append(event)
        self._there.set()

    async def next(self) -> str:
        """The next event, or a sign of life, as it goes over the wire."""
        try:
            async with asyncio.timeout(_ALIVE_EVERY_S):
                await self._there.wait()
        except TimeoutError:
            return ": alive\n\n"
        event = self._untaken.popleft()
        if not self._untaken:
            self._there.clear()
        return f"id: {event.number}\nevent: change\ndata: {json.dumps(asdict(event))}\n\n"
