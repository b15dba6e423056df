"""An established connection of the simulated network, and what its two ends are to each other."""

from __future__ import annotations

from typing import Protocol

from bkbox.frontend.request_router import RequestRouter
from proof.sim.world.loop import Process
from proof.sim.world.network import Route


class ClientEnd(Protocol):
    """The client's end: a link (link.py)."""

    @property
    def host(self) -> str: ...

    @property
    def process(self) -> Process: ...

    def on_responses(self, connection: Connection, responses: list[tuple[int, bytes]]) -> None:
        """Responses that have arrived, by the numbers of their requests."""

    def broken(self, connection: Connection) -> None:
        """The other end is gone."""


class Listener(Protocol):
    """The bookie's end: a front-end (frontend.py)."""

    process: Process
    bookie: str
    connections: list[Connection]

    def intake(self) -> RequestRouter:
        """The router of a new connection."""

    def take(self, connection: Connection, frames: list[tuple[int, bytes]]) -> None:
        """Requests that have arrived, with their numbers."""


class Connection:
    """One established connection, seen from both ends. ``broken``: the client's end has noticed; ``deferred``: entries
    of ledgers whose adds with deferred sync got their response on it."""

    __slots__ = (
        "back",
        "broken",
        "deferred",
        "frontend",
        "intake",
        "link",
        "number",
        "outbox",
        "there",
    )

    def __init__(self, link: ClientEnd, frontend: Listener, number: int) -> None:
        self.link = link
        self.frontend = frontend
        self.number = number
        self.broken = False
        self.intake = frontend.intake()
        self.outbox: list[tuple[int, bytes]] = []
        self.deferred: dict[int, set[int]] = {}
        self.there = Route(link.host, frontend.bookie)
        self.back = Route(frontend.bookie, link.host)
