"""Small immutable classes that cost little to define.

``@frozen_struct`` is ``@dataclass(frozen=True, slots=True)`` for readers, for mypy and for ``match``: fields are the
annotations of the class; a value equals others of its class with equal fields, has their hash and shows them all. A
dataclass takes up to a millisecond to define, and a bookie would spend a quarter of its start on the messages of the
protocols and the formats of the disk; a value class takes a tenth of that.

Left out for it: ``field()``, inheritance of fields, and the functions of ``dataclasses``. Immutability is checked by
mypy, not at run time.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

_T = TypeVar("_T")


@dataclass_transform(frozen_default=True)
def frozen_struct(cls: type[_T]) -> type[_T]:
    """Make a class of immutable values of it."""
    names = tuple(cls.__annotations__)
    body = {name: item for name, item in vars(cls).items() if name not in _OF_THE_FIRST}
    defaults = tuple(body.pop(name) for name in names if name in body)
    body |= {
        "__slots__": names,
        "__match_args__": names,
        "__init__": _init(names, defaults),
        "_values": attrgetter(*names),
        "__eq__": _eq,
        "__hash__": _hash,
        "__repr__": _repr,
        "__qualname__": cls.__qualname__,
    }
    kind: Any = type(cls)
    made: type[_T] = kind(cls.__name__, cls.__bases__, body)  # anew: slots cannot be added later
    return made


_OF_THE_FIRST = frozenset({"__dict__", "__weakref__"})


def _init(names: tuple[str, ...], defaults: tuple[object, ...]) -> object:
    lines = "".join(f" self.{name} = {name}\n" for name in names)
    found: dict[str, Any] = {}
    exec(f"def __init__(self, {', '.join(names)}):\n{lines}", {}, found)  # noqa: S102 names of fields
    found["__init__"].__defaults__ = defaults
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
    """A copy of ``one`` with these fields changed."""
    made: Any = one
    return type(one)(**{name: getattr(made, name) for name in made.__slots__} | changes)
