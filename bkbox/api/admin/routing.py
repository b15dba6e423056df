"""The route of a request, by its method and path."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from urllib.parse import unquote

from bkbox.api.admin.problems import HttpRefusedError
from bkbox.api.admin.routes import Route
from bkbox.errors import NoSuchRouteError

_SHOWN = 200


class MethodNotAllowedError(HttpRefusedError):
    """A request whose path takes other methods: ``allowed``, separated by commas."""

    def __init__(self, text: str, allowed: str) -> None:
        super().__init__(HTTPStatus.METHOD_NOT_ALLOWED, text)
        self.allowed = allowed


class Router:
    """A table of routes; of two that match, the first."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._by_length: dict[int, list[tuple[list[str], Route]]] = {}
        for route in routes:
            segments = route.path.split("/")
            self._by_length.setdefault(len(segments), []).append((segments, route))

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        """The route, and the values of its path's parameters. ``path``: percent-encoded.

        Raises HttpRefusedError for a path without a route, MethodNotAllowedError.
        """
        given = [_decoded(segment) for segment in path.split("/")]
        allowed = set()
        for segments, route in self._by_length.get(len(given), ()):
            place = _match(segments, given)
            if place is None:
                continue
            if route.method == method:
                return route, place
            allowed.add(route.method)
        if allowed:
            listed = ", ".join(sorted(allowed))
            raise MethodNotAllowedError(
                f"{path[:_SHOWN]} takes {listed}, not {method[:20]}", listed
            )
        raise HttpRefusedError(
            HTTPStatus.NOT_FOUND,
            f"there is nothing at {path[:_SHOWN]}; /openapi.json says what there is",
            NoSuchRouteError,
        )


def _decoded(segment: str) -> str:
    """A segment whose bytes are no UTF-8 stays percent-encoded: it names nothing, and its handler says so."""
    try:
        return unquote(segment, errors="strict")
    except UnicodeDecodeError:
        return segment


def _match(segments: list[str], given: list[str]) -> dict[str, str] | None:
    place: dict[str, str] = {}
    for segment, text in zip(segments, given, strict=True):
        if segment.startswith("{"):
            if not text:
                return None
            place[segment[1:-1]] = text
        elif segment != text:
            return None
    return place
