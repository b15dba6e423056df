"""The OpenAPI document (3.1) of the admin API, generated from the server's table of routes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import bkbox
from bkbox.api.admin.problems import CONTENT_TYPE, Problem
from bkbox.api.admin.routes import NUMBER_MAX, Query, Route
from bkbox.api.admin.schema import Schemas

_PLACE = "#/components/schemas"
_NUMBERS = frozenset({"id"})
"""Path parameters that are whole numbers; all others are text."""

_ALWAYS = {
    401: "No token, or a wrong one (over TCP).",
    403: "The caller may not do this.",
    409: "It cannot be done as things stand; `detail` says why.",
    429: "Too many requests (over TCP).",
    500: "A defect of bkbox.",
    503: "Too many connections, or the metadata store is away.",
    504: "A process or a disk of the bookie did not answer in time.",
}
_OF_REQUESTS = {
    400: "The request cannot be understood; `detail` says what is wrong, and where.",
    404: "There is no such thing.",
}
_OF_BODIES = {
    408: "The body did not come in time.",
    413: "The body is too large.",
    415: "The body is not application/json.",
}

_PROBLEM = {"content": {CONTENT_TYPE: {"schema": {"$ref": f"{_PLACE}/Problem"}}}}

_TEXT = {"text/plain": {"schema": {"type": "string"}}}

_INTRODUCTION = (
    "The admin API of one bookie. Over the unix socket it answers root and the user that runs the bookie; over TCP "
    "(`http_listen`, with TLS by `http_tls`) callers with a token. Requests of web pages are refused. Every error is "
    "a problem document (RFC 9457) with the name of bkbox's error in `error`."
)


def document_of(routes: Iterable[Route]) -> dict[str, Any]:
    """The whole document. Paths that Apache's bookie has, too, are tagged ``java``."""
    response_schemas, body_schemas = Schemas(_PLACE), Schemas(_PLACE, strict=True)
    response_schemas.of(Problem)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        operation = _operation(route, response_schemas, body_schemas)
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "bkbox admin API",
            "version": bkbox.__version__,
            "description": _INTRODUCTION,
        },
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted((response_schemas.found | body_schemas.found).items())),
            "responses": {
                f"Problem{status}": {"description": text, **_PROBLEM}
                for status, text in sorted({**_ALWAYS, **_OF_REQUESTS, **_OF_BODIES}.items())
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(route: Route, response_schemas: Schemas, body_schemas: Schemas) -> dict[str, Any]:
    parameters = [*map(_in_path, re.findall(r"{(\w+)}", route.path)), *map(_in_query, route.query)]
    operation: dict[str, Any] = {
        "operationId": _name(route),
        "summary": route.summary,
        "tags": ["java" if route.java else "bkbox"],
        "responses": _responses(route, response_schemas),
    }
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None:
        schema = body_schemas.of(route.body)
        required = bool(body_schemas.found[route.body.__name__]["required"])
        operation["requestBody"] = {
            "required": required,
            "content": {"application/json": {"schema": schema}},
        }
    return operation


def _responses(route: Route, response_schemas: Schemas) -> dict[str, Any]:
    schema = (
        {"type": "string"}
        if route.media != "application/json"
        else response_schemas.of(route.returns)
    )
    good = {"content": {route.media: {"schema": schema}}}
    found: dict[int, dict[str, Any]] = {200: {"description": "Done.", **good}}
    for status in route.statuses:
        content = {"content": dict(_TEXT if route.java else good["content"])}
        found[status] = {"description": HTTPStatus(status).phrase, **content}
    for status in {**_ALWAYS, **_OF_REQUESTS, **(_OF_BODIES if route.changes else {})}:
        if status in found:
            found[status]["content"] |= _PROBLEM["content"]
        else:
            found[status] = {"$ref": f"#/components/responses/Problem{status}"}
    return {str(status): found[status] for status in sorted(found)}


def _in_path(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string", "minLength": 1, "pattern": "^[^/]+$"}
    if name in _NUMBERS:
        schema = {"type": "integer", "minimum": 0, "maximum": NUMBER_MAX}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _in_query(parameter: Query) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": parameter.kind}
    if parameter.kind == "integer":
        schema |= {"minimum": 0, "maximum": NUMBER_MAX}
    elif parameter.kind == "boolean":
        schema = {"anyOf": [schema, {"const": ""}]}
    return {
        "name": parameter.name,
        "in": "query",
        "description": parameter.doc,
        "required": parameter.required,
        "schema": schema,
    }


def _name(route: Route) -> str:
    parts = re.findall(r"\w+", route.path.removeprefix("/api/v1"))
    return "_".join([route.method.lower(), *parts])
