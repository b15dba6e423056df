"""Dataclasses from JSON, every value checked on the way; ``dataclasses.asdict`` is the way there.

A document is a dataclass of text, numbers, truth values, literals, enumerations, tuples, mappings of text, other such
dataclasses, and None where the annotation allows it. Keys that are not known are skipped: somebody newer wrote them.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from bkbox.errors import EncodingError

T = TypeVar("T")


def from_document(cls: type[T], value: object, where: str) -> T:
    """Build a dataclass from what ``json.loads`` gave. Raises EncodingError naming the place that is wrong.

    ``where`` is the name of the whole in such an error.
    """
    if not isinstance(value, Mapping):
        raise EncodingError(f"{where}: expected an object, found {type(value).__name__}")
    known = get_type_hints(cls)
    names = [field.name for field in fields(cast(Any, cls))]
    missing = [name for name in names if name not in value]
    if missing:
        raise EncodingError(f"{where}: {', '.join(missing)} is missing")
    return cls(**{name: _value(known[name], value[name], f"{where}.{name}") for name in names})


def _value(annotation: Any, value: object, where: str) -> Any:
    """Check a value against the few kinds of annotation that documents use."""
    if is_dataclass(annotation):
        return from_document(cast(type, annotation), value, where)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is tuple and isinstance(value, (list, tuple)):
        items = enumerate(value)
        return tuple(_value(arguments[0], item, f"{where}[{number}]") for number, item in items)
    if origin is dict and isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _value(arguments[1], item, f"{where}.{key}") for key, item in value.items()}
    if origin is Literal and value in arguments:
        return value
    if origin in (Union, types.UnionType):
        return None if value is None else _value(arguments[0], value, where)
    if annotation is float and type(value) in (int, float):
        return value
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        if isinstance(value, str) and value in annotation._value2member_map_:
            return annotation(value)
    elif isinstance(annotation, type) and type(value) is annotation:
        return value
    raise EncodingError(f"{where}: {value!r} is not {_name(annotation)}")


def _name(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return "one of " + ", ".join(map(repr, get_args(annotation)))
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return "one of " + ", ".join(repr(item.value) for item in annotation)
    return getattr(annotation, "__name__", str(annotation))
