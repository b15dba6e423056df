"""Children of a simulated supervisor, and the control channels between processes of one host."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, cast

from bkbox.errors import ConnectionLostError
from bkbox.ipc.channel import Handler, raise_refusal
from bkbox.ipc.messages.message import Message, Refused
from bkbox.supervisor.children.process import Exit
from proof.sim.world.loop import Process

_DELAY_S = 0.0002
_DEATH_SEEN_S = 0.005
"""Seconds until a parent sees that a child is gone."""


class Callee(Protocol):
    """A process that accepts control messages."""

    @property
    def process(self) -> Process: ...

    def receive(self, message: Message) -> Message | None: ...


class SimChannel:
    """One end of a control channel, replacing AsyncChannel: the end of the process that is running."""

    def __init__(self, callee: Callee) -> None:
        self._callee = callee
        self._loop = cast(Process, asyncio.get_running_loop())
        self._calls: dict[asyncio.Future[Message | None], None] = {}
        self.closed = callee.process.dead
        callee.process.on_death.append(self._died)

    async def call(
        self, message: Message, fds: Sequence[int] = (), timeout_s: float | None = None
    ) -> Message:
        if self.closed:
            raise ConnectionLostError("the process at the other end of the control channel is gone")
        reply: asyncio.Future[Message | None] = self._loop.create_future()
        self._calls[reply] = None
        message.call = 1  # any number: each reply comes by its own way
        self._callee.process.after(_DELAY_S, self._deliver, message, reply)
        try:
            response = await asyncio.wait_for(reply, timeout_s)
        finally:
            self._calls.pop(reply, None)
        if isinstance(response, Refused):
            raise_refusal(response)
        assert response is not None
        return response

    def send(self, message: Message, fds: Sequence[int] = ()) -> None:
        if not self.closed:
            self._callee.process.after(_DELAY_S, self._callee.receive, message)

    def _deliver(self, message: Message, reply: asyncio.Future[Message | None]) -> None:
        response = self._callee.receive(message)
        self._loop.after(_DELAY_S, self._reply, reply, response)

    def _reply(self, reply: asyncio.Future[Message | None], response: Message | None) -> None:
        if not reply.done():
            reply.set_result(response)

    def _died(self) -> None:
        self._loop.after(_DEATH_SEEN_S, self.close)

    def close(self) -> None:
        self.closed = True
        for reply in self._calls:
            if not reply.done():
                reply.set_exception(
                    ConnectionLostError(
                        "the process at the other end of the control channel is gone"
                    )
                )


class SimChild:
    """Replaces Child."""

    def __init__(self, handle: Any, name: str, on_message: Handler | None = None) -> None:
        callee: Callee = handle
        self.name = name
        self.pid = 0
        self.callee = callee
        self._loop = cast(Process, asyncio.get_running_loop())
        self.control = SimChannel(callee)
        self._exited: asyncio.Future[Exit] = self._loop.create_future()
        callee.process.on_death.append(self._died)
        if on_message is not None:
            callee.process.tell = partial(self._tell, on_message)  # type: ignore[attr-defined]

    def _tell(self, on_message: Handler, message: Message) -> None:
        """Delivers a message that the child sends unasked."""
        self._loop.after(_DELAY_S, on_message, message, [])

    @property
    def running(self) -> bool:
        return not self._exited.done()

    async def wait(self) -> Exit:
        return await asyncio.shield(self._exited)

    def kill(self) -> None:
        self.callee.process.die("its supervisor killed it")

    async def end(self, timeout_s: float) -> Exit:
        try:
            return await asyncio.wait_for(self.wait(), timeout_s)
        except TimeoutError:
            self.kill()
            return await self.wait()

    def _died(self) -> None:
        self._loop.after(_DEATH_SEEN_S, self._reap)

    def _reap(self) -> None:
        if not self._exited.done():
            self._exited.set_result(Exit(-9))


Make = Callable[[str], Callee]


class SimChildPool:
    """Replaces Nursery: makes processes of the host by role."""

    def __init__(self, makers: dict[str, Make]) -> None:
        self._makers = makers

    def acquire(self, role: str, name: str) -> Any:
        return self._makers[role](name)
