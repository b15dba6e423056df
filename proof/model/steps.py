"""The form in which actions return what happens: a ``Step`` changes what its actor sees, and gives deliveries to
bookies' parts.

An actor (a bookie, a crash, a client by itself, a client that takes something from a bookie) sees only its slots, and
returns the steps that it can take. What a step needs of other bookies, or does with their
messages, is a ``Delivery`` for each of them. A delivery has outcomes: none (then the step cannot be taken), or the ways
in which that part goes on. A step with deliveries has as many successors as there are combinations of outcomes.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from proof.model.network import (
    Message,
    has_read_timeout,
    has_write_timeout,
    sent,
    without_read_timeouts,
    without_write_timeouts,
)
from proof.model.state import ActorView, Client, World, members


class Task(Enum):
    """Effect of a delivery on a part."""

    SEND = "send"
    NO_READ_TIMEOUT = "no read timeout"
    READ_TIMEOUT = "read timeout"
    READ_TIMEOUT_ENDS = "read timeout ends"
    WRITE_TIMEOUT_ENDS = "write timeout ends"


class Delivery(NamedTuple):
    """A delivery for a part. Timeouts are those of ``client``, or of all (None); a write timeout is that of adds of one
    kind."""

    task: Task
    message: Message | None = None
    client: int | None = None
    recovery: bool = False


Deliveries = tuple[tuple[int, Delivery], ...]
"""Pairs of a bookie and the delivery for its part; no bookie twice."""


class Step(NamedTuple):
    """A step; None leaves a part unchanged. ``asks``: a recovery read is sent."""

    words: str
    world: World | None = None
    client: Client | None = None
    part: ActorView | None = None
    deliveries: Deliveries = ()
    asks: bool = False


def send(bookies: int, message: Message) -> Deliveries:
    """Deliveries that send a message to each of these bookies."""
    return to_each(bookies, Delivery(Task.SEND, message))


def to_each(bookies: int, delivery: Delivery) -> Deliveries:
    """The same delivery for each of these bookies."""
    return tuple((bookie, delivery) for bookie in members(bookies))


def outcomes(delivery: Delivery, part: ActorView, *, loss: bool) -> Iterable[ActorView]:
    """The parts that can follow; nothing if the delivery is not possible there."""
    task, message, client, recovery = delivery
    mail = part.mail
    match task:
        case Task.SEND:
            assert message is not None
            return [part._replace(mail=after) for after in sent(mail, message, loss=loss)]
        case Task.NO_READ_TIMEOUT:
            return [] if has_read_timeout(mail, client) else [part]
        case Task.READ_TIMEOUT:
            return [part] if has_read_timeout(mail, client) else []
        case Task.READ_TIMEOUT_ENDS:
            if not has_read_timeout(mail, client):
                return []
            return [part._replace(mail=without_read_timeouts(mail, client))]
        case Task.WRITE_TIMEOUT_ENDS:
            if not has_write_timeout(mail, client, recovery=recovery):
                return []
            return [part._replace(mail=without_write_timeouts(mail, client, recovery=recovery))]
