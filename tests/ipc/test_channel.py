"""Control channels between a blocking and an asyncio end: calls, errors, descriptors, the end of the other side."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable

import pytest

from bkbox.errors import BugError, ConnectionLostError, DiskFullError
from bkbox.ipc import channel
from bkbox.ipc.async_channel import AsyncChannel
from bkbox.ipc.channel import Channel
from bkbox.ipc.messages.disk import ListLedgers, MarkLedgers
from bkbox.ipc.messages.message import Done, Message, Page, decode, encode
from bkbox.ipc.messages.migration import DiskSpaceReply, FindDisk
from bkbox.ipc.messages.process import GetStats, Stats


def with_server(
    serve: Callable[[Channel], None], client: Callable[[AsyncChannel], object]
) -> object:
    """Run ``client`` in asyncio against ``serve`` in a thread."""
    ours, theirs = channel.pair()
    thread = threading.Thread(target=serve, args=(Channel(theirs),))
    thread.start()

    async def run() -> object:
        end = AsyncChannel(ours)
        try:
            return await client(end)  # type: ignore[misc]
        finally:
            end.close()

    try:
        return asyncio.run(run())
    finally:
        thread.join()
        theirs.close()


@pytest.mark.parametrize(
    "message",
    [
        ListLedgers(after=5, limbo_only=True, call=3),
        Page(more=True, payload=bytes(range(256)), call=1),
        Stats(values={"a": [1, "x"], "b": {}}),
        MarkLedgers(payload=b"\0" * 61_440),
    ],
)
def test_messages_survive_the_way(message: Message) -> None:
    assert decode(encode(message)) == message


def test_a_message_that_is_not_known_is_a_defect() -> None:
    header = b'{"type":"Nonsense","call":0}'
    with pytest.raises(BugError, match="Nonsense"):
        decode(len(header).to_bytes(4, "little") + header)


def test_calls_are_matched_to_their_replies_in_any_order() -> None:
    def serve(end: Channel) -> None:
        calls = [end.receive()[0] for _ in range(3)]
        for call in reversed(calls):
            assert isinstance(call, ListLedgers)
            end.send(Page(call=call.call, payload=str(call.after).encode()))

    async def client(end: AsyncChannel) -> list[bytes]:
        pages = await asyncio.gather(*(end.call(ListLedgers(after=number)) for number in range(3)))
        return [page.payload for page in pages]

    assert with_server(serve, client) == [b"0", b"1", b"2"]


def test_an_error_comes_back_as_what_it_was() -> None:
    def serve(end: Channel) -> None:
        call, _fds = end.receive()
        reply = channel.refusal(DiskFullError("no room on /data"))
        reply.call = call.call
        end.send(reply)

    async def client(end: AsyncChannel) -> None:
        with pytest.raises(DiskFullError, match="no room on /data"):
            await end.call(GetStats())

    with_server(serve, client)


def test_descriptors_travel_and_the_sender_may_close_its_own() -> None:
    def serve(end: Channel) -> None:
        call, fds = end.receive()
        os.write(fds[0], b"hello")
        os.close(fds[0])
        end.send(Done(call=call.call))

    async def client(end: AsyncChannel) -> bytes:
        readable, writable = os.pipe()
        waiting = asyncio.ensure_future(end.call(GetStats(), [writable]))
        await asyncio.sleep(0)
        os.close(writable)
        await waiting
        data = os.read(readable, 10)
        os.close(readable)
        return data

    assert with_server(serve, client) == b"hello"


def test_the_end_of_the_other_side_fails_what_waits_and_what_comes() -> None:
    def serve(end: Channel) -> None:
        end.receive()
        end.close()

    async def client(end: AsyncChannel) -> None:
        with pytest.raises(ConnectionLostError):
            await end.call(GetStats())
        with pytest.raises(ConnectionLostError):
            await end.call(GetStats())

    with_server(serve, client)


def test_more_than_a_socket_buffer_is_queued_in_order() -> None:
    count = 200

    def serve(end: Channel) -> None:
        for number in range(count):
            message, _fds = end.receive()
            assert message.payload[:2] == number.to_bytes(2, "big")
        end.send(Done(call=1))

    async def client(end: AsyncChannel) -> object:
        for number in range(count):
            end.send(Page(payload=number.to_bytes(2, "big") * 20_000))
        waiting: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        end._calls[1] = waiting
        return type(await waiting)

    assert with_server(serve, client) is Done


def test_a_message_that_does_not_decode_ends_the_calls_that_wait() -> None:
    """It may have been the reply to any of them: without a time-out they would wait for ever."""

    async def run() -> None:
        ours, theirs = channel.pair()
        asyncio.get_running_loop().set_exception_handler(
            lambda *_: None
        )  # the defect is told there
        end = AsyncChannel(ours)
        waiting = asyncio.ensure_future(end.call(GetStats()))
        await asyncio.sleep(0)
        theirs.send(b"nonsense")
        with pytest.raises(ConnectionLostError):
            await asyncio.wait_for(waiting, 30)
        assert end.closed
        theirs.close()

    asyncio.run(run())


def test_calls_of_both_sides_may_have_one_number() -> None:
    """The repair worker asks for a migration while the supervisor asks it for a sign of life."""

    async def story() -> None:
        one, two = channel.pair()
        asked: list[tuple[int, Message]] = []
        ends = [
            AsyncChannel(sock, on_message=lambda message, _fds, at=at: asked.append((at, message)))  # type: ignore[misc]
            for at, sock in enumerate((one, two))
        ]
        calls = [
            asyncio.ensure_future(ends[0].call(FindDisk(disk="a"))),
            asyncio.ensure_future(ends[1].call(GetStats())),
        ]
        while len(asked) < 2:
            await asyncio.sleep(0)
        assert [type(message) for _, message in sorted(asked, key=lambda each: each[0])] == [
            GetStats,
            FindDisk,
        ]
        assert {message.call for _, message in asked} == {1}
        ends[1].send(DiskSpaceReply(disk="b", call=1))
        ends[0].send(Stats(values={"x": 1}, call=1))
        assert await calls[0] == DiskSpaceReply(disk="b", call=1)
        assert await calls[1] == Stats(values={"x": 1}, call=1)
        for end in ends:
            end.close()

    asyncio.run(asyncio.wait_for(story(), 60))
