"""What is written to topics and read from them: every message says its topic and number, so that a reader knows which
comes next, and what its bytes are."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence

import pulsar

BYTES = 200
BATCH = 50
RECEIVE_MS = 60_000


def message(topic: str, number: int) -> bytes:
    head = f"{topic}/{number}/".encode()
    digest = hashlib.sha256(head).digest()
    return (head + digest * (BYTES // len(digest) + 1))[:BYTES]


def connect(url: str) -> pulsar.Client:
    return pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


class Writer:
    """One producer per topic. A send is repeated until it is acknowledged."""

    def __init__(self, client: pulsar.Client, topics: Sequence[str]) -> None:
        self.written = 0
        """Messages of each topic."""
        self._failures: list[str] = []
        self._producers = {
            topic: client.create_producer(
                topic,
                send_timeout_millis=0,
                block_if_queue_full=True,
                batching_enabled=True,
                batching_max_messages=BATCH,
            )
            for topic in topics
        }

    def write(self, count: int) -> None:
        """``count`` more messages to each topic; all are acknowledged at the return."""
        for number in range(self.written, self.written + count):
            for topic, producer in self._producers.items():
                producer.send_async(message(topic, number), self._sent)
        for producer in self._producers.values():
            producer.flush()
        self.written += count
        assert not self._failures, self._failures[:3]

    def in_background(self, count: int) -> threading.Thread:
        thread = threading.Thread(target=self.write, args=(count,))
        thread.start()
        return thread

    def _sent(self, result: pulsar.Result, _: object) -> None:
        if result != pulsar.Result.Ok:
            self._failures.append(str(result))


def subscribe(client: pulsar.Client, topic: str, name: str) -> pulsar.Consumer:
    return client.subscribe(
        topic,
        name,
        initial_position=pulsar.InitialPosition.Earliest,
    )


def read(consumer: pulsar.Consumer, topic: str, begin: int, end: int, *, repeats: int) -> None:
    """Receives and acknowledges the messages from ``begin`` to before ``end``: none is missing, none is out of order,
    each has its bytes. ``repeats``: so many before the expected one may come again, as they do after a restart of the
    broker."""
    expected = begin
    while expected < end:
        received = consumer.receive(RECEIVE_MS)
        number = int(received.data().split(b"/")[1])
        assert expected - repeats <= number <= expected, (topic, expected, number)
        assert received.data() == message(topic, number)
        consumer.acknowledge(received)
        expected += number == expected
