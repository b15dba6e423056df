"""Checks of the arguments of public calls.

Every argument is checked at the call, before anything is sent or queued. Few callers use a type checker, and the
queue is shared with other callers' requests. A message names the argument, its value and the allowed values. For a
value that is no number, text or flag it shows the type alone.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import operator
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from bkbox.base.ids import MAX_ID, EntryId, LedgerId, entry_id, ledger_id
from bkbox.base.text import quoted
from bkbox.errors import ConfigError, InvalidArgumentError, InvalidIdError, UnknownOptionError

T = TypeVar("T")

SECONDS_MAX = 1e9
"""Upper bound of a time, in seconds: thirty years. A longer one is a mistake, and does not fit
time-outs on the wire.
"""

INT32_MAX = 2**31 - 1
_INT64_MIN = -(2**63)


def ledger(value: object) -> LedgerId:
    """A ledger id, which is a number. Raises InvalidIdError."""
    return ledger_id(_id("ledger", value))


def entry(value: object) -> EntryId:
    """An entry id, which is a number. Raises InvalidIdError."""
    return entry_id(_id("entry", value))


def last_entry(value: object) -> EntryId:
    """The last entry of a range; -1: the range is empty, as of a ledger without entries. Raises InvalidIdError."""
    number = _id("entry", value)
    return EntryId(-1) if number == -1 else entry_id(number)


def integer(name: str, value: object, low: int = _INT64_MIN, high: int = MAX_ID) -> int:
    """A whole number from ``low`` to ``high``. Raises InvalidArgumentError."""
    number = _index(value)
    if number is None:
        raise InvalidArgumentError(f"{name} {shown(value)}: give a whole number")
    if not low <= number <= high:
        raise InvalidArgumentError(f"{name} {number} is outside {low}..{high}")
    return number


def seconds(name: str, value: object) -> float:
    """A time in seconds, 0 or more. Raises InvalidArgumentError."""
    number = _real(value)
    if number is None:
        raise InvalidArgumentError(f"{name} {shown(value)}: give seconds, as a number")
    if not 0 <= number <= SECONDS_MAX:
        raise InvalidArgumentError(f"{name} {shown(value)} is outside 0..{SECONDS_MAX:.0f} seconds")
    return number


def timeout(value: object) -> float | None:
    """``timeout_s`` of a blocking call, in seconds. None: no time-out. A negative value, as the rest of a deadline
    may be, counts as 0. Raises InvalidArgumentError.
    """
    if value is None:
        return None
    number = _real(value)
    if number is None or math.isnan(number):
        raise InvalidArgumentError(f"timeout_s {shown(value)}: give seconds, as a number, or None")
    return min(max(number, 0.0), SECONDS_MAX)


def flag(name: str, value: object) -> bool:
    """True or False. Raises InvalidArgumentError."""
    if not isinstance(value, bool):
        raise InvalidArgumentError(f"{name} {shown(value)}: give True or False")
    return value


def instance(name: str, value: object, kind: type[T], example: str = "") -> T:
    """Check the type of an argument. Raises InvalidArgumentError."""
    if not isinstance(value, kind):
        what = example or f"a {kind.__name__}"
        raise InvalidArgumentError(f"{name} {shown(value)}: give {what}")
    return value


def password(value: object) -> bytes | None:
    """Bytes, or None to take the password from the metadata store. Raises InvalidArgumentError."""
    return None if value is None else instance("password", value, bytes, "bytes")


def iterable(name: str, value: Iterable[T]) -> Iterator[T]:
    """An iterator over the argument. Raises InvalidArgumentError if it cannot be iterated over."""
    try:
        return iter(value)
    except TypeError:
        raise InvalidArgumentError(f"{name} {shown(value)}: give several, as a list") from None


def is_unicode(text: str) -> bool:
    """True if the text can be encoded as UTF-8; half of a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def problems(*checks: Callable[[], object]) -> list[str]:
    """The messages of all checks that fail."""
    found = []
    for check in checks:
        try:
            check()
        except (InvalidArgumentError, InvalidIdError) as error:
            found.append(str(error))
    return found


def shown(value: object) -> str:
    """An argument as a message shows it."""
    if value is None or isinstance(value, (bool, int, float, str)):
        text = quoted(value) if isinstance(value, str) else str(value)
        return text if len(text) <= 100 else f"{text[:100]}…"
    return f"of type {type(value).__name__}"


def _id(what: str, value: object) -> int:
    number = _index(value)
    if number is None:
        raise InvalidIdError(f"{what} id {shown(value)}: give a whole number")
    return number


def _index(value: object) -> int | None:
    """A whole number of any type, NumPy's included, but not a flag; None for anything else."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def _real(value: object) -> float | None:
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


# ---- options ----------------------------------------------------------------------------------------


def unknown(name: str, known: Collection[str]) -> str:
    """The message for an unknown option, with the known option nearest to it."""
    by_lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), by_lower, 1, 0.5)
    if near:
        return f"option {quoted(name)} is not known: did you mean {quoted(by_lower[near[0]])}?"
    return f"option {quoted(name)} is not known; known are {', '.join(sorted(known))}"


def made_of(kind: type[T], given: Mapping[str, object]) -> T:
    """Options, a dataclass that checks itself, from names and values. Raises ConfigError with every problem."""
    known = _hints(kind)
    strange = [unknown(name, known) for name in given if name not in known]
    try:
        made = kind(**{name: value for name, value in given.items() if name in known})
    except ConfigError as error:
        if strange:
            raise UnknownOptionError([*strange, *error.problems]) from None
        raise
    if strange:
        raise UnknownOptionError(strange)
    return made


def option_problems(options: object, above_0: Collection[str]) -> list[str]:
    """The problems of the values of a dataclass, by the types of its fields. Numbers are 0 or more, the fields in
    ``above_0`` greater than 0. Names that end in ``_s`` are seconds.
    """
    found = []
    for name, hint in _hints(type(options)).items():
        value = getattr(options, name)
        problem = _problem(name, value, hint)
        if problem is None and name in above_0 and not value > 0:
            problem = f"{name} = {shown(value)} has to be above 0"
        if problem is not None:
            found.append(problem)
    return found


def _hints(kind: type[Any]) -> Mapping[str, Any]:
    hints = get_type_hints(kind)
    return {each.name: hints[each.name] for each in dataclasses.fields(kind)}


def _problem(name: str, value: object, hint: Any) -> str | None:
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    if value is None and type(None) in kinds:
        return None
    (kind,) = (each for each in kinds if each is not type(None))
    if get_origin(kind) is Literal:
        allowed = get_args(kind)
        fits = isinstance(value, str) and value in allowed
        return None if fits else f"{name} {shown(value)} is not one of {', '.join(allowed)}"
    if get_origin(kind) is not None:
        return None if callable(value) else f"{name} {shown(value)}: give a function"
    if kind is int:
        number = _index(value)
        if number is None:
            return f"{name} = {shown(value)}: give a whole number"
        return None if 0 <= number <= MAX_ID else f"{name} = {number} is outside 0..{MAX_ID}"
    if kind is float:
        return next(iter(problems(lambda: seconds(f"{name} =", value))), None)
    if isinstance(value, kind):
        return None
    if issubclass(kind, Enum):
        names = ", ".join(f"{kind.__name__}.{each.name}" for each in kind)
        return f"{name} = {shown(value)}: give one of {names}"
    what = {bool: "True or False", str: "text", bytes: "bytes"}.get(kind, kind.__name__)
    return f"{name} = {shown(value)}: give {what}"
