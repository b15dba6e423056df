"""Counterexamples as text: the steps, and what each step changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from proof.model.network import DONE, LOST, THERE, Kind, Message
from proof.model.space import PackedState, Space, State
from proof.model.state import ActorView, members


@dataclass(frozen=True, slots=True)
class Line:
    """One state of a trace: the step to it, and its differences from the state before."""

    words: str
    changes: tuple[str, ...]


def lines_of(
    space: Space, representative: Callable[[int, int], PackedState], path: Sequence[PackedState]
) -> Iterator[Line]:
    """Formats a path through representative states, with one name for each client and bookie all along."""
    state = space.initial
    yield Line("at first", ("nothing is there",))
    for target in path[1:]:
        step = next(
            step for step in space.successors(state) if representative(*step.state) == target
        )
        changes = tuple(_changes(space.unpack(state), space.unpack(step.state)))
        yield Line(step.words, changes)
        state = step.state


def _changes(before: State, after: State) -> Iterator[str]:
    if before.world != after.world:
        yield from _fields("metadata", before.world, after.world)
    for number, (old, new) in enumerate(zip(before.clients, after.clients, strict=True), 1):
        if old != new:
            yield from _fields(f"client {number}", old, new)
    for number, (was, now) in enumerate(zip(before.parts, after.parts, strict=True), 1):
        if was != now:
            yield from _fields(f"bookie {number}", was, now)
            yield from _mail(f"bookie {number}", was, now)


def _fields(owner: str, before: NamedTuple, after: NamedTuple) -> Iterator[str]:
    changed = [
        f"{name.replace('_', ' ')} {_text(name, new)}"
        for name, old, new in zip(before._fields, before, after, strict=True)
        if old != new and name not in ("mail", "written", "crashes")
    ]
    if changed:
        yield f"{owner}: {', '.join(changed)}"


def _text(name: str, item: object) -> str:
    if isinstance(item, bool):
        return "yes" if item else "no"
    if name in ("role", "phase", "status"):
        return str(getattr(item, "name", item)).lower()
    if name in ("fenced", "has", "has_not", "unknown") and isinstance(item, int):
        return _bookies(item)
    if name == "acks" and isinstance(item, tuple):
        return (
            "; ".join(f"{entry} by {_bookies(some)}" for entry, some in enumerate(item, 1) if some)
            or "none"
        )
    if name == "fragments" and isinstance(item, tuple):
        return "; ".join(f"{_bookies(f.ensemble)} from {f.first}" for f in item)
    if name == "pending" and isinstance(item, tuple):
        return " ".join(str(add.entry) for add in item) or "none"
    if name == "entries" and isinstance(item, tuple):
        return (
            " ".join(str(e) if e == body else f"{e} with the body of {body}" for e, body in item)
            or "none"
        )
    return str(item)


def _bookies(some: int) -> str:
    return "{" + ", ".join(str(bookie + 1) for bookie in members(some)) + "}"


_FATES = {THERE: "on its way", DONE: "done", LOST: "lost"}
_KINDS = {
    Kind.ADD: "add",
    Kind.ADDED: "answer to add",
    Kind.FENCE: "fence",
    Kind.FENCED: "answer to fence",
    Kind.READ: "read",
    Kind.RESPONSE: "answer to read",
}


def _mail(owner: str, before: ActorView, after: ActorView) -> Iterator[str]:
    old = dict(before.mail)
    for message, fate in after.mail:
        if old.get(message) != fate and fate != DONE:
            yield f"{owner}, client {message.client + 1}: {_message(message)} {_FATES[fate]}"


def _message(message: Message) -> str:
    words = _KINDS[message.kind]
    if message.recovery:
        words = words.replace("add", "recovery add")
    if message.entry:
        words += f" of entry {message.entry}"
    if message.kind in (Kind.ADDED, Kind.RESPONSE):
        words += f" ({message.code.name.lower().replace('_', ' ')})"
    if message.kind in (Kind.ADD, Kind.FENCED):
        words += f" with LAC {message.lac}"
    return words
