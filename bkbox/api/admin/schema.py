"""JSON Schema (draft 2020-12) of documents, generated from their dataclasses (bkbox/base/documents.py)."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from enum import StrEnum
from typing import Any, Literal, NewType, Union, get_args, get_origin

from bkbox.base.documents import parts_of
from bkbox.base.text import quoted

_PRIMITIVES: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    object: {},
    Any: {},
}


class Schemas:
    """Collects the schemas of classes by name. ``place``: their location, as a JSON pointer."""

    def __init__(self, place: str, *, strict: bool = False) -> None:
        """``strict``: objects have no keys other than those named."""
        self._place = place
        self._strict = strict
        self.found: dict[str, dict[str, Any]] = {}
        self._classes: dict[str, type[Any]] = {}

    def of(self, annotation: Any) -> dict[str, Any]:
        """The schema of values with this annotation; classes are given as references."""
        origin, arguments = get_origin(annotation), get_args(annotation)
        if isinstance(annotation, NewType):
            return self.of(annotation.__supertype__)
        if annotation in _PRIMITIVES:
            return dict(_PRIMITIVES[annotation])
        if is_dataclass(annotation) and isinstance(annotation, type):
            return self._class(annotation)
        if isinstance(annotation, type) and issubclass(annotation, StrEnum):
            return {"type": "string", "enum": [item.value for item in annotation]}
        if origin in (tuple, list):
            return {"type": "array", "items": self.of(arguments[0])}
        if origin is dict:
            return {"type": "object", "additionalProperties": self.of(arguments[1])}
        if origin is Literal:
            return {"type": "string", "enum": list(arguments)}
        if origin in (Union, types.UnionType):
            (known,) = (item for item in arguments if item is not types.NoneType)
            return {"anyOf": [self.of(known), {"type": "null"}]}
        raise TypeError(f"documents have no values of {quoted(annotation)}")

    def _class(self, cls: type[Any]) -> dict[str, Any]:
        name = cls.__name__
        if name not in self.found:
            self._classes[name] = cls
            self.found[name] = {}  # it may refer to itself
            self.found[name] = self._object(cls)
        elif self._classes[name] is not cls:
            raise TypeError(f"two classes of the API are called {name}")
        return {"$ref": f"{self._place}/{name}"}

    def _object(self, cls: type[Any]) -> dict[str, Any]:
        parts = parts_of(cls)
        schema: dict[str, Any] = {
            "type": "object",
            "description": _paragraph(cls.__doc__ or ""),
            "properties": {
                part.name: self.of(part.annotation) | _default(part.default) for part in parts
            },
            "required": [part.name for part in parts if part.default is None],
        }
        if self._strict:
            schema["additionalProperties"] = False
        more = getattr(cls, "more_schema", None)  # extends the schema beyond the annotations
        return schema if more is None else schema | more()


def schema_of(cls: type[Any], title: str) -> dict[str, Any]:
    """The complete schema of a document."""
    schemas = Schemas("#/$defs")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **schemas.of(cls),
        "$defs": dict(sorted(schemas.found.items())),
    }


def _default(make: Callable[[], Any] | None) -> dict[str, Any]:
    if make is None:
        return {}
    value = make()
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    return {"default": list(value) if isinstance(value, tuple) else value}


def _paragraph(text: str) -> str:
    return " ".join(inspect.cleandoc(text).split())
