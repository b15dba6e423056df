"""The network: the messages that were ever sent, and the fate of each.

A message is sent once: it is a key of a map that never loses a key. Its value is its *fate*: ``THERE`` (deliverable),
``DONE`` (delivered, or its loss acted upon) or ``LOST``. Loss is decided when a message is sent, so it is seen as a
timeout at once. ``Mail`` is the map of one bookie: its requests and responses with all clients, sorted.

Order: of the deliverable adds of one kind (recovery or not) for one bookie, the lowest entry is delivered first, and
the same for their responses; the client does not matter, unless ``per_client``. Fences and reads have no order.

A send to several bookies happens only if none of the messages was ever sent. So it is one ``Send`` for each bookie, and
a send that is not possible has no outcome there.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

THERE, DONE, LOST = 1, 0, -1


class Kind(IntEnum):
    """Kinds of requests and responses."""

    ADD = 0
    ADDED = 1
    FENCE = 2
    FENCED = 3
    READ = 4
    RESPONSE = 5


REQUESTS = frozenset({Kind.ADD, Kind.FENCE, Kind.READ})
_WRITES = frozenset({Kind.ADD, Kind.ADDED})
_READS = frozenset({Kind.READ, Kind.RESPONSE})


class Code(IntEnum):
    """Code of a RESPONSE to a read; ADDED has OK or FENCED."""

    OK = 0
    NO_SUCH_ENTRY = 1
    UNKNOWN = 2
    FENCED = 3


class Message(NamedTuple):
    """A message between one bookie and ``client``. ``entry`` is 0 in a response without an entry."""

    kind: Kind
    client: int
    entry: int = 0
    body: int = 0
    recovery: bool = False
    lac: int = 0
    code: Code = Code.OK


Mail = tuple[tuple[Message, int], ...]


def waiting(mail: Mail, kind: Kind) -> list[Message]:
    """The deliverable messages of a kind, sorted."""
    return [message for message, fate in mail if fate == THERE and message.kind is kind]


def is_earliest(mail: Mail, message: Message, *, per_client: bool) -> bool:
    """True if the order of adds lets this one be delivered now."""
    return not any(
        other.entry < message.entry
        and other.recovery == message.recovery
        and (other.client == message.client or not per_client)
        for other in waiting(mail, message.kind)
    )


def done(mail: Mail, message: Message) -> Mail:
    """The mail after the message was delivered."""
    return tuple((key, DONE if key == message else fate) for key, fate in mail)


def sent(mail: Mail, message: Message, *, loss: bool) -> list[Mail]:
    """The possible results of sending; nothing if the message was sent before."""
    if any(key == message for key, _ in mail):
        return []
    fates = (LOST, THERE) if loss else (THERE,)
    return [tuple(sorted((*mail, (message, fate)))) for fate in fates]


def requests_lost(mail: Mail) -> Mail:
    """Requests in flight to the bookie are lost; its own messages are not."""
    return tuple(
        (key, LOST if fate == THERE and key.kind in REQUESTS else fate) for key, fate in mail
    )


def has_read_timeout(mail: Mail, client: int | None) -> bool:
    """True if a read, or the response to one, was lost. ``client`` None: any client's."""
    return any(_is_read_timeout(key, fate, client) for key, fate in mail)


def without_read_timeouts(mail: Mail, client: int | None) -> Mail:
    """The mail after these timeouts were acted upon."""
    return tuple((key, DONE if _is_read_timeout(key, fate, client) else fate) for key, fate in mail)


def has_write_timeout(mail: Mail, client: int | None, *, recovery: bool) -> bool:
    """True if an add of this kind, or the response to one, was lost."""
    return any(_is_write_timeout(key, fate, client, recovery) for key, fate in mail)


def without_write_timeouts(mail: Mail, client: int | None, *, recovery: bool) -> Mail:
    """The mail after these timeouts were acted upon."""
    return tuple(
        (key, DONE if _is_write_timeout(key, fate, client, recovery) else fate)
        for key, fate in mail
    )


def _is_read_timeout(key: Message, fate: int, client: int | None) -> bool:
    return fate == LOST and key.kind in _READS and client in (None, key.client)


def _is_write_timeout(key: Message, fate: int, client: int | None, recovery: bool) -> bool:
    return (
        fate == LOST
        and key.kind in _WRITES
        and key.recovery == recovery
        and client in (None, key.client)
    )
