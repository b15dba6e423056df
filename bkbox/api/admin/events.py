"""Events of the admin API: changes of the bookie, sent to all listeners as server-sent events (WHATWG HTML, section
9.2).

The bookie is polled only while there are listeners. Each event has a number; a listener that reconnects with the number
of its last event gets the events since, as far as they are remembered.
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
from bkbox.base.text import error_text
from bkbox.errors import BkboxError
from bkbox.jobs.job import Job

log = logging.getLogger(__name__)

LISTENERS_MAX = 256
REMEMBERED_MAX = 1_000
_POLL_EVERY_S = 1.0
_ALIVE_EVERY_S = 10.0
_RETRY_MS = 2_000
_UNSENT_MAX = 1_000
"""Maximum number of unsent events of a listener; the oldest are dropped."""

StatusSource = Callable[[], Awaitable[tuple[Status, Sequence[Job]]]]


@dataclass(frozen=True, slots=True)
class Event:
    """One change. ``severity``: info, warning or error."""

    number: int
    ms: int
    severity: str
    subject: str
    text: str


class Events:
    """The event source and its listeners. ``source``: returns the current status document and all jobs."""

    def __init__(self, source: StatusSource) -> None:
        self._source = source
        self._before: tuple[Status, Sequence[Job]] | None = None
        self._remembered: deque[Event] = deque(maxlen=REMEMBERED_MAX)
        self._number = 0
        self._listeners: set[_Listener] = set()
        self._watching: asyncio.Task[None] | None = None

    def listen(self, last: int | None) -> AsyncGenerator[str, None]:
        """The stream of one listener, whose last event was ``last``. Raises HttpRefusedError if there are too many
        listeners."""
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
        watching = self._watching
        try:
            yield f"retry: {_RETRY_MS}\n\n"
            while True:
                yield await listener.next()
                if watching.done():
                    await watching  # raises its error: this listener would get no more events
        finally:
            self._listeners.discard(listener)

    async def _watch(self) -> None:
        """Polls the bookie as long as there are listeners."""
        try:
            while self._listeners:
                try:
                    self._tell(await self._source())
                except (BkboxError, OSError) as error:
                    log.warning("events: the bookie cannot be looked at: %s", error_text(error))
                await asyncio.sleep(_POLL_EVERY_S)
        finally:
            self._before = None  # changes without a listener are no events

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
    """One listener and its unsent events."""

    def __init__(self, missed: Sequence[Event]) -> None:
        self._unsent: deque[Event] = deque(missed, maxlen=_UNSENT_MAX)
        self._there = asyncio.Event()
        if missed:
            self._there.set()

    def put(self, event: Event) -> None:
        self._unsent.append(event)
        self._there.set()

    async def next(self) -> str:
        """The next event, or a keep-alive comment, as it is sent."""
        try:
            async with asyncio.timeout(_ALIVE_EVERY_S):
                await self._there.wait()
        except TimeoutError:
            return ": alive\n\n"
        event = self._unsent.popleft()
        if not self._unsent:
            self._there.clear()
        return f"id: {event.number}\nevent: change\ndata: {json.dumps(asdict(event))}\n\n"
