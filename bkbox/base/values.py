"""Small classes that cost little to define: ``@frozen_struct`` and ``@struct``.

For readers, for mypy and for ``match`` they are ``@dataclass(frozen=True, slots=True)`` and ``@dataclass(slots=True,
eq=False)``: fields are the annotations of the class. A frozen struct equals others of its class with equal fields and
has their hash; a struct, which may change, equals itself only. A dataclass takes up to a millisecond to define, and the
module loads half of ``inspect``; a struct takes a tenth of that. What a start of a worker or a front-end loads uses
these, and ``dataclasses`` nowhere.

What is left out for it: inheritance of fields, ``__post_init__``, and the functions of ``dataclasses`` beside the two
here; and that a frozen struct does not change is checked by mypy, not when it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, TypeVar, cast, dataclass_transform

_T = TypeVar("_T")


class _Factory:
    """In the place of a default: makes one for each struct."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make


def field(*, default_factory: Callable[[], _T]) -> _T:
    """A field whose default is made anew for each struct."""
    return cast(_T, _Factory(default_factory))


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen_struct(cls: type[_T]) -> type[_T]:
    """Make a class of values of it."""
    compared = {
        "_values": attrgetter(*cls.__annotations__),
        "__eq__": _eq,
        "__hash__": _hash,
    }
    return _made(cls, compared)


@dataclass_transform(eq_default=False, field_specifiers=(field,))
def struct(cls: type[_T]) -> type[_T]:
    """Make a class of it whose fields may change."""
    return _made(cls, {})


def _made(cls: type[_T], compared: dict[str, Any]) -> type[_T]:
    names = tuple(cls.__annotations__)
    body = {name: item for name, item in vars(cls).items() if name not in _OF_THE_FIRST}
    defaults = {name: body.pop(name) for name in names if name in body}
    body |= compared
    body |= {
        "__slots__": names,
        "__match_args__": names,
        "__init__": _init(names, defaults),
        "__repr__": _repr,
        "__qualname__": cls.__qualname__,
    }
    kind: Any = type(cls)
    made: type[_T] = kind(cls.__name__, cls.__bases__, body)  # anew: slots cannot be added later
    return made


_OF_THE_FIRST = frozenset({"__dict__", "__weakref__"})


def _init(names: tuple[str, ...], defaults: dict[str, Any]) -> object:
    makers = {name: item.make for name, item in defaults.items() if type(item) is _Factory}
    lines = "".join(
        f" self.{name} = make_{name}() if {name} is absent else {name}\n"
        if name in makers
        else f" self.{name} = {name}\n"
        for name in names
    )
    known: dict[str, Any] = {"absent": _Factory}
    known |= {f"make_{name}": make for name, make in makers.items()}
    found: dict[str, Any] = {}
    exec(f"def __init__(self, {', '.join(names)}):\n{lines}", known, found)  # noqa: S102 names of fields
    found["__init__"].__defaults__ = tuple(
        _Factory if name in makers else item for name, item in defaults.items()
    )
    return found["__init__"]


def _eq(self: Any, other: Any) -> object:
    if type(self) is not type(other):
        return NotImplemented
    return self._values(self) == other._values(other)


def _hash(self: Any) -> int:
    return hash((type(self), self._values(self)))


def _repr(self: Any) -> str:
    fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
    return f"{type(self).__qualname__}({fields})"


def replaced(one: _T, **changes: object) -> _T:
    """A value like ``one`` but for these fields."""
    return type(one)(**as_dict(one) | changes)


def as_dict(one: object) -> dict[str, Any]:
    """The fields of a struct by name."""
    made: Any = one
    return {name: getattr(made, name) for name in made.__slots__}
