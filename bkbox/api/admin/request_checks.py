"""Checks of a request against its route: path, query and body. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

from bkbox.api.admin.http_connection import RequestHead
from bkbox.api.admin.problems import HttpRefusedError
from bkbox.api.admin.routes import EVENT_STREAM, Query, Route, whole_number
from bkbox.base.documents import ParseMode, from_document
from bkbox.base.text import quoted
from bkbox.errors import BadRequestError, EncodingError

_BOOLEANS = {"true": True, "false": False}
_PARAMETERS_MAX = 100


def check_path(place: Mapping[str, str]) -> None:
    """Raises BadRequestError."""
    for name, text in place.items():
        _refuse_unprintable(text, f"path: {name}")


def query_of(route: Route, head: RequestHead) -> dict[str, Any]:
    """The query's parameters. Raises BadRequestError."""
    known = {parameter.name: parameter for parameter in route.query}
    found: dict[str, Any] = {}
    for name, text in _pairs(head.query):
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
    last = head.headers.get("last-event-id")
    if last is not None and "after" in known and route.media == EVENT_STREAM:
        found["after"] = whole_number("Last-Event-ID", last)  # sent by a client that reconnects
    return found


def _pairs(query: str) -> list[tuple[str, str]]:
    try:
        return parse_qsl(
            query, keep_blank_values=True, errors="strict", max_num_fields=_PARAMETERS_MAX
        )
    except UnicodeDecodeError:
        raise BadRequestError("query: it is not percent-encoded UTF-8") from None
    except ValueError:
        raise BadRequestError(f"query: it has more than {_PARAMETERS_MAX} parameters") from None


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


def body_of(route: Route, head: RequestHead, raw: bytes) -> object:
    """The body as the class that the route takes; None if it takes none. Raises BadRequestError, HttpRefusedError."""
    if route.body is None:
        if raw:
            raise BadRequestError("body: this takes none")
        return None
    # Java's bookie ignores the content type, and callers of its paths send none.
    content_type = head.headers.get("content-type", "").partition(";")[0].strip().lower()
    if raw and content_type != "application/json" and not route.java:
        raise HttpRefusedError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"the body has content type {quoted(content_type[:80])}; it has to be application/json",
        )
    if raw and head.headers.get("content-encoding", "identity").lower() != "identity":
        raise HttpRefusedError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the body is compressed; send it as it is"
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
