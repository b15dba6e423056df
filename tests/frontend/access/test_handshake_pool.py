"""The door, told what time it is: how handshakes share the front-end with those inside, and who goes when."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bkbox.base.logs.refusals import Refusals
from bkbox.frontend.access import handshake_pool as door_module
from bkbox.frontend.access.access_policy import AccessPolicy
from bkbox.frontend.access.handshake_pool import HandshakePool
from bkbox.frontend.overload.connection_cpu_budget import SAVED_S, SHARE, ConnectionCpuBudget

HANDSHAKE_S = 0.01


class Clock:
    now = 0.0


class Sock:
    closed = False
    silent = False

    def close(self) -> None:
        self.closed = True


class Guest:
    """Its handshake takes HANDSHAKE_S each time that something is heard of it."""

    tls = object()
    waits = False
    until_s = 0.0
    host = ""

    def __init__(self, sock: Sock, peer: str, _policy: AccessPolicy, _refused: object) -> None:
        self.sock = sock
        self.peer = peer
        self.steps = 0

    def ready(self) -> bool:
        if self.sock.silent:
            raise BlockingIOError
        Clock.now += HANDSHAKE_S
        self.steps += 1
        return self.steps == 2


class Loop:
    def __init__(self) -> None:
        self.handlers: dict[Sock, Callable[[], None]] = {}

    def watch(self, source: Sock, handler: Callable[[], None]) -> None:
        assert source not in self.handlers
        self.handlers[source] = handler

    def unwatch(self, source: Sock) -> None:
        del self.handlers[source]


class Scene:
    def __init__(self) -> None:
        Clock.now = 0.0
        self.loop = Loop()
        self.inside: list[str] = []
        self.gone: list[str] = []
        self.others_work = True
        self.door = HandshakePool(
            self.loop,  # type: ignore[arg-type]
            lambda: Clock.now,
            lambda visitor: self.inside.append(visitor.peer),
            lambda visitor, _error: self.gone.append(visitor.peer),
            Refusals(lambda: Clock.now),
            ConnectionCpuBudget(lambda: Clock.now, lambda: Clock.now, lambda: self.others_work),
            lambda _by_s: None,
        )

    def receive(self, name: str) -> Sock:
        sock = Sock()
        self.door.receive(sock, name, name, AccessPolicy())  # type: ignore[arg-type]
        return sock


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(door_module, "UnauthenticatedConnection", Guest)
    return Scene()


@pytest.mark.parametrize("others_work", [True, False])
def test_handshakes_have_a_share_of_the_time_of_others(scene: Scene, others_work: bool) -> None:
    """All have something to say at all times: first they take what is saved, then their share."""
    scene.others_work = others_work
    scene.door.timeout_s = 1000.0
    for number in range(1000):
        scene.receive(str(number))
    while Clock.now < 10.0:
        scene.door.tick()
        for handler in list(scene.loop.handlers.values())[:10]:
            handler()
        Clock.now += 0.001
    took_s = HANDSHAKE_S * 2 * len(scene.inside)
    allowed_s = SAVED_S + SHARE * Clock.now
    if others_work:
        assert 0.8 * allowed_s < took_s < 1.2 * allowed_s
        assert 0.0 < (scene.door.wait_s() or 0.0) <= HANDSHAKE_S / SHARE
    else:
        assert took_s > 0.9 * Clock.now


def test_who_takes_too_long_goes(scene: Scene) -> None:
    scene.door.timeout_s = 5.0
    first = scene.receive("first")
    first.silent = True
    assert scene.door.wait_s() == 5.0
    Clock.now = 3.0
    scene.receive("second").silent = True
    Clock.now = 5.0
    scene.door.tick()
    assert scene.gone == ["first"]
    assert first.closed
    assert scene.door.wait_s() == 3.0
    Clock.now = 8.0
    scene.door.tick()
    assert scene.gone == ["first", "second"]
    assert scene.door.wait_s() is None
    assert not scene.loop.handlers


def test_nobody_goes_for_what_the_front_end_had_no_time_for(scene: Scene) -> None:
    """A process that was stopped, or had no processor, finds what came meanwhile together with the end of the time."""
    scene.door.timeout_s = 5.0
    for name in ("quick", "slow"):
        scene.receive(name)
    for handler in list(scene.loop.handlers.values())[:1]:
        handler()  # of the first, one of its two steps
    Clock.now = 9.0
    scene.door.tick()
    assert (scene.inside, scene.gone) == (["quick"], ["slow"])
    assert not scene.loop.handlers


def test_too_many_make_the_oldest_go(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door_module, "UNAUTHENTICATED_MAX", 2)
    for name in "abc":
        scene.receive(name)
    assert scene.gone == ["a"]
    assert len(scene.door) == 2
