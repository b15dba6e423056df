"""What a control message is, its form on the wire, and the replies that many calls have.

A message on the wire is: header length u32 | header (JSON) | payload (raw bytes). JSON and not pickle: a compromised
process must not be able to run code in the others. ``call`` pairs a request with its reply; 0 means that no reply is
expected. Large lists travel in the payload, in pages of at most PAGE_ITEMS items, because a message must fit into a
socket buffer.

Messages look like dataclasses, to readers and to mypy, but are not: a dataclass costs a millisecond to define, a
process defines dozens of these before it serves, and creates few of them.
"""

from __future__ import annotations

import json
import struct
from typing import Any, ClassVar, dataclass_transform

from bkbox.base.text import error_text, quoted
from bkbox.errors import BugError

_LENGTH = struct.Struct("=I")


@dataclass_transform(kw_only_default=True)
class _Fields:
    """A class whose annotations, those of its bases included, are its fields, passed by keyword."""

    _names: ClassVar[frozenset[str]] = frozenset()
    _required: ClassVar[frozenset[str]] = frozenset()
    recipients: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, to: str = "") -> None:
        cls.recipients = frozenset(to.split())
        own = cls.__annotations__.keys()
        cls._names = cls._names | own
        cls._required = cls._required | {name for name in own if not hasattr(cls, name)}

    def __init__(self, **values: Any) -> None:
        if not self._required <= values.keys() <= self._names:
            raise BugError(
                f"control message {type(self).__name__} with fields {', '.join(sorted(values))} is not known"
            )
        vars(self).update(values)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(
            getattr(self, name) == getattr(other, name) for name in self._names
        )

    __hash__ = None  # type: ignore[assignment] # like a mutable dataclass

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in vars(self).items())})"


class Message(_Fields):
    """Base of all messages; ``payload`` is not part of the JSON header.

    ``to`` in a definition: the processes that handle the message, by table (ipc/handlers.py) except in the supervisor.
    A reply has none: it goes to its caller.
    """

    call: int = 0
    payload: bytes = b""

    def __init_subclass__(cls, to: str = "") -> None:
        super().__init_subclass__(to)
        _KINDS[cls.__name__] = cls


_KINDS: dict[str, type[Message]] = {}
"""The messages that this process has loaded, by name: those that it sends and receives."""


class Done(Message):
    """The call was carried out."""


class Refused(Message):
    """The call could not be carried out: error type name and text."""

    error: str
    text: str


class Page(Message):
    """A page of a list. Its items are in the payload; ``more``: another page follows."""

    more: bool = False


def encode(message: Message) -> bytes:
    values = {"type": type(message).__name__, **vars(message)}
    payload: bytes = values.pop("payload", b"")
    header = json.dumps(values, separators=(",", ":")).encode()
    return _LENGTH.pack(len(header)) + header + payload


_UNDECODABLE = (struct.error, ValueError, LookupError, TypeError, AttributeError, RecursionError)


def decode(data: bytes) -> Message:
    """Raises BugError: both ends are ours, so a message that does not decode is a defect."""
    try:
        (length,) = _LENGTH.unpack_from(data)
        values = json.loads(data[_LENGTH.size : _LENGTH.size + length])
        name = values.pop("type")
        kind = _KINDS.get(name)
        if kind is not None:
            return kind(payload=data[_LENGTH.size + length :], **values)
    except _UNDECODABLE as error:
        raise BugError(f"a control message cannot be decoded: {error_text(error)}") from error
    raise BugError(f"control message {quoted(name)} is not known")
