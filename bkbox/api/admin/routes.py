"""What the admin server is asked and answers, without HTTP: a table of methods and paths, a coroutine for each, and
what the API document (openapi.py) says of it.

An answer is what ``json.dumps`` takes, or one of the classes below. A BkboxError that a route raises is raised again in
the process that asked.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from bkbox.base.values import frozen_struct
from bkbox.base.words import quoted
from bkbox.errors import BadRequestError, BugError

T = TypeVar("T")

EVENT_STREAM = "text/event-stream"

NUMBER_MAX = 2**63 - 1
"""In a path or query: no id is greater."""

_DIGITS_MAX = len(str(NUMBER_MAX))


@frozen_struct
class Request:
    """``place``: the parts of the path that stand in braces in the route. ``query``: of these the values that were
    given, checked. ``body``: what the route's ``body`` is made of, checked; None where it takes none. ``who`` asks, for
    the log.
    """

    place: Mapping[str, str]
    query: Mapping[str, Any] = MappingProxyType({})
    body: object = None
    who: str = ""

    def number(self, name: str) -> int:
        """A whole number of the path. Raises BadRequestError."""
        return whole_number(name, self.place[name])

    def told(self, cls: type[T]) -> T:
        """The body, whose class is that of the route."""
        if not isinstance(self.body, cls):
            raise BugError(f"the route's body is no {cls.__name__}")
        return self.body


def whole_number(name: str, text: str) -> int:
    """Raises BadRequestError."""
    if not text.isascii() or not text.isdecimal() or len(text) > _DIGITS_MAX:
        raise BadRequestError(
            f"{name} {quoted(text[:40])} is not a whole number, or has more digits than any"
        )
    number = int(text)
    if number > NUMBER_MAX:
        raise BadRequestError(f"{name} {number} is more than {NUMBER_MAX}")
    return number


@frozen_struct
class TextResponse:
    """An answer that is no JSON."""

    body: str
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200


@frozen_struct
class JsonResponse:
    """An answer in JSON with another status than 200."""

    value: object
    status: int


@frozen_struct
class EventStream:
    """An answer that goes on: ``chunks`` are sent as they come, until it ends or the client is gone. A client that
    does not take them is left."""

    chunks: AsyncGenerator[str, None]
    content_type: str = EVENT_STREAM


Answer = Callable[[Request], Awaitable[object]]


@frozen_struct
class Query:
    """A parameter behind the question mark. A whole number is 0 or more; ``?name`` is as good as ``?name=true``."""

    name: str
    kind: Literal["integer", "string", "boolean"]
    doc: str
    required: bool = False


@frozen_struct
class Route:
    """``path`` as aiohttp takes it: ``/api/v1/jobs/{id}``. For the API document: ``summary``, the class of the
    ``body``, the annotation of what is answered (``returns``), and of what text it is where it is no JSON
    (``media``). ``body`` may be left out of a request where all of its fields have defaults. ``statuses``: those of
    answers beside 200, errors apart. ``java``: the path and its answers are those of Apache's bookie; those with other
    statuses are text then.
    """

    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    answer: Answer
    summary: str = ""
    body: type[Any] | None = None
    returns: Any = object
    query: tuple[Query, ...] = ()
    media: str = "application/json"
    statuses: tuple[int, ...] = ()
    java: bool = False

    @property
    def changes(self) -> bool:
        """Whether it needs the right to change something."""
        return self.method != "GET"


Routes = Callable[[], tuple[Route, ...]]
"""Loaded with the first client, as what it names may take long to import."""
