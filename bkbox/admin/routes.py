"""What the admin server is asked and answers, without HTTP: a table of methods and paths, and a coroutine for each.

An answer is what ``json.dumps`` takes. A BkboxError that a route raises is raised again in the process that asked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from bkbox.errors import EncodingError


@dataclass(frozen=True, slots=True)
class Asked:
    """``place``: the parts of the path that stand in braces in the route. ``values``: the JSON object of the body."""

    place: Mapping[str, str]
    values: Mapping[str, Any]

    def number(self, name: str) -> int:
        """A whole number of the path. Raises EncodingError."""
        text = self.place[name]
        if not text.isascii() or not text.isdecimal():
            raise EncodingError(f"{name} {text!r} is not a number")
        return int(text)


Answer = Callable[[Asked], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Route:
    """``path`` as aiohttp takes it: ``/api/v1/jobs/{id}``."""

    method: Literal["GET", "POST"]
    path: str
    answer: Answer


Routes = Callable[[], tuple[Route, ...]]
"""Loaded with the first client, as what it names may take long to import."""
