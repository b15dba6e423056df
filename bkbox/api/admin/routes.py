"""The admin API without HTTP: a table of methods and paths, a coroutine for each, and its description for the API
document (openapi.py).

A response is a value that ``json.dumps`` takes, or one of the classes below. A BkboxError that a route raises is raised
again in the client's process.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from bkbox.base.text import quoted
from bkbox.base.values import frozen_struct
from bkbox.errors import BadRequestError, BugError

T = TypeVar("T")

EVENT_STREAM = "text/event-stream"

NUMBER_MAX = 2**63 - 1
"""Largest number in a path or query: no id is greater."""

_DIGITS_MAX = len(str(NUMBER_MAX))


@frozen_struct
class Request:
    """A checked request. ``place``: values of the path's parameters (in braces in the route). ``query``: the given
    query parameters. ``body``: an instance of the route's ``body`` class; None if it takes none. ``caller``: the name
    of the caller, for the log."""

    place: Mapping[str, str]
    query: Mapping[str, Any] = MappingProxyType({})
    body: object = None
    caller: str = ""

    def number(self, name: str) -> int:
        """A path parameter as a whole number. Raises BadRequestError."""
        return whole_number(name, self.place[name])

    def body_as(self, cls: type[T]) -> T:
        """The body, which must be of the route's body class."""
        if not isinstance(self.body, cls):
            raise BugError(f"the route's body is no {cls.__name__}")
        return self.body


def whole_number(name: str, text: str) -> int:
    """Parses a whole number. Raises BadRequestError."""
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
    """A response that is not JSON."""

    body: str
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200


@frozen_struct
class JsonResponse:
    """A JSON response with a status other than 200."""

    value: object
    status: int


@frozen_struct
class EventStream:
    """A streamed response: ``chunks`` are sent as they come, until the iterator ends or the client disconnects. The
    connection of a client that does not receive them is closed."""

    chunks: AsyncGenerator[str, None]
    content_type: str = EVENT_STREAM


RequestHandler = Callable[[Request], Awaitable[object]]


@frozen_struct
class Query:
    """A query parameter. A whole number is 0 or more; ``?name`` means ``?name=true``."""

    name: str
    kind: Literal["integer", "string", "boolean"]
    doc: str
    required: bool = False


@frozen_struct
class Route:
    """A route. ``path``: segments, of which a parameter is one in braces: ``/api/v1/jobs/{id}``. For the API document:
    ``summary``, the class of the ``body``, the annotation of the response (``returns``), and the media type of a
    response that is not JSON (``media``). ``body`` may be omitted from a request if all of its fields have defaults.
    ``statuses``: statuses of responses other than 200, without errors. ``java``: the path and its responses are those
    of Apache's bookie; responses with another status are text."""

    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    handler: RequestHandler
    summary: str = ""
    body: type[Any] | None = None
    returns: Any = object
    query: tuple[Query, ...] = ()
    media: str = "application/json"
    statuses: tuple[int, ...] = ()
    java: bool = False

    @property
    def changes(self) -> bool:
        """True if the route requires permission to change things."""
        return self.method != "GET"


Routes = Callable[[], tuple[Route, ...]]
"""Loads the table with the first client, as the modules that it names may take long to import."""
