"""Dataclasses from JSON with every value checked; ``dataclasses.asdict`` is the inverse.

A document is a dataclass of text, numbers, truth values, literals, enumerations, tuples, mappings of text, other such
dataclasses, and None where the annotation allows it. A missing field has its default: an older version wrote the
document. The rest depends on the mode:

==========  ===========================================================================================
LENIENT     unknown keys are skipped: a newer version wrote them
STRICT      an unknown key is an error: it is mistyped
FORGIVING   as LENIENT, and an invalid value has its default, too
==========  ===========================================================================================
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum, StrEnum, auto
from typing import (
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from bkbox.base.text import quoted
from bkbox.errors import EncodingError

T = TypeVar("T")


class ParseMode(Enum):
    """The modes of reading a document: see above."""

    LENIENT = auto()
    STRICT = auto()
    FORGIVING = auto()


class DocField(NamedTuple):
    """A field of a document. ``default``: makes its default; None if the field is required."""

    name: str
    annotation: Any
    default: Callable[[], Any] | None


_KINDS: dict[Any, str] = {
    dict: "an object",
    list: "a list",
    tuple: "a list",
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    types.NoneType: "null",
}

_PARTS: dict[type[Any], tuple[DocField, ...]] = {}


def parts_of(cls: type[Any]) -> tuple[DocField, ...]:
    """The fields of a document, in their order."""
    if cls not in _PARTS:  # inspecting annotations takes longer than reading a document
        known = get_type_hints(cls)
        _PARTS[cls] = tuple(
            DocField(item.name, known[item.name], _default(item)) for item in fields(cls)
        )
    return _PARTS[cls]


def from_document(
    cls: type[T], value: object, where: str, reading: ParseMode = ParseMode.LENIENT
) -> T:
    """Build a dataclass from a document of ``json.loads``. Raises EncodingError naming the invalid place.

    ``where`` is the name of the whole in such an error.
    """
    if not isinstance(value, Mapping):
        raise EncodingError(f"{where}: expected an object, found {json_kind(value)}")
    parts = parts_of(cls)
    missing = [part.name for part in parts if part.default is None and part.name not in value]
    if missing:
        raise EncodingError(f"{where}: {', '.join(missing)} is missing")
    if reading is ParseMode.STRICT:
        _refuse_unknown([part.name for part in parts], value, where)
    found = {}
    for name, annotation, default in parts:
        if name not in value:
            continue
        try:
            found[name] = _value(annotation, value[name], f"{where}.{name}", reading)
        except EncodingError:
            if reading is not ParseMode.FORGIVING or default is None:
                raise
    return cls(**found)


def _refuse_unknown(known: list[str], value: Mapping[str, object], where: str) -> None:
    for name in value:
        if name not in known:
            there = f"there are {', '.join(known)}" if known else "it has none"
            raise EncodingError(f"{where}: unknown field {quoted(name)}; {there}")


def _default(item: Any) -> Callable[[], Any] | None:
    if item.default_factory is not MISSING:
        return cast("Callable[[], Any]", item.default_factory)
    return None if item.default is MISSING else lambda: item.default


def _value(annotation: Any, value: object, where: str, reading: ParseMode) -> Any:
    """Check a value against the few kinds of annotation that documents use."""
    if is_dataclass(annotation):
        return from_document(cast(type, annotation), value, where, reading)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is tuple and isinstance(value, (list, tuple)):
        items = enumerate(value)
        return tuple(
            _value(arguments[0], item, f"{where}[{number}]", reading) for number, item in items
        )
    if origin is dict and isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {
            key: _value(arguments[1], item, f"{where}.{key}", reading)
            for key, item in value.items()
        }
    if origin is Literal and value in arguments:
        return value
    if origin in (Union, types.UnionType):
        return None if value is None else _value(arguments[0], value, where, reading)
    if annotation is float and type(value) in (int, float):
        return value
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        if isinstance(value, str) and value in annotation._value2member_map_:
            return annotation(value)
    elif isinstance(annotation, type) and type(value) is annotation:
        return value
    raise EncodingError(f"{where}: {quoted(value)} is not {_name(annotation)}")


def _name(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return "one of " + ", ".join(map(quoted, get_args(annotation)))
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return "one of " + ", ".join(quoted(item.value) for item in annotation)
    return _KINDS[get_origin(annotation) or annotation]


def json_kind(value: object) -> str:
    """The type of a value of ``json.loads``, in the terms of JSON."""
    return _KINDS[type(value)]
