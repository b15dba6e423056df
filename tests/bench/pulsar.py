"""A Pulsar broker on bkbox's bookies beside the same broker on Apache's.

``python -m tests.bench.pulsar [--rounds 3] [--dir FOLDER] [--quick] [--no-report]`` (JDK 17, Maven): three bookies, a
broker, ZooKeeper and Pulsar's client for Python share the machine. Each round starts each side anew, in turn, and runs
the same loads: messages as fast as they are acknowledged, at a constant rate with latency from the intended time, and
reads of all that was written, past the broker's cache. bkbox syncs before it acknowledges, Java's bookies write their
journals. The table goes between the markers ``pulsar`` of docs/pulsar.md.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pulsar

from bkbox.bench.server import temporary_folder
from bkbox.errors import BenchError
from tests.bench.peers import report
from tests.bench.peers.java import JavaBookie, command
from tests.bench.quiet import QuietMachine
from tests.harness.java import CHECKOUT, missing_reason
from tests.harness.processes import BookieProcess, bkbox
from tests.harness.zookeeper import ZooKeeper
from tests.pulsar.broker import OPTIONS, Broker
from tests.pulsar.load import connect

PAGE = CHECKOUT / "docs" / "pulsar.md"
OURS, THEIRS = "bkbox", "java"
BOOKIES = 3
TOPICS = [f"topic-{number}" for number in range(10)]
BYTES = 1024
BATCH_DELAY_MS = 1
PENDING = 500
"""Messages of a topic that may be sent and not acknowledged."""
RATE = 5_000
WARMUP_S, SECONDS = 5.0, 10.0
READ_S_MAX = 300.0
SETTINGS = {
    "managedLedgerDefaultEnsembleSize": "3",
    "managedLedgerDefaultWriteQuorum": "3",
    "managedLedgerDefaultAckQuorum": "2",
    "managedLedgerMaxEntriesPerLedger": "50000",
    "managedLedgerMinLedgerRolloverTimeMinutes": "10",
    "managedLedgerCacheSizeMB": "0",
    "defaultRetentionTimeInMinutes": "-1",
    "defaultRetentionSizeInMB": "-1",
    "transactionCoordinatorEnabled": "false",
}
"""Upstream's but for retention, transactions, and the cache: reads are to come from the bookies."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What one side came to in one round. Latencies are milliseconds."""

    sent_per_s: float
    paced_p50_ms: float
    paced_p99_ms: float
    paced_p999_ms: float
    received_per_s: float


class _Broker(Broker):
    """With the JVM options of a server, not of a test."""

    def command(self, main: str, *arguments: str, heap_mb: int) -> list[str]:
        words = (*OPTIONS, main, *arguments)
        return command(words[0], *words[1:], heap_mb=heap_mb, direct_mb=512, classes=self.classes)


@contextmanager
def broker(side: str, root: Path) -> Iterator[str]:
    """The URL of a broker on three bookies of this side, all new."""
    with ExitStack() as stack:
        (root / "zookeeper").mkdir(parents=True)
        zookeeper = ZooKeeper(root / "zookeeper").start()
        stack.callback(zookeeper.kill)
        ledgers = zookeeper.new_root()
        uri = zookeeper.uri(ledgers, layout="metadata-store")
        bkbox("cluster", "init", "--metadata", uri)
        for number in range(BOOKIES):
            name = f"{side}-{number}"
            if side == OURS:
                ours = BookieProcess(root, uri, name=name)
                stack.callback(ours.ensure_gone)
                stack.callback(ours.stop)  # no orphan of it computes beside the other side
                ours.init(disks=1).start()
            else:
                plain = zookeeper.uri(ledgers, layout="hierarchical")
                theirs = JavaBookie(root / name, plain, journal=True, heap_mb=512, direct_mb=512)
                stack.callback(theirs.kill)
                theirs.start()
        serving = _Broker(root, uri, **SETTINGS)
        stack.callback(serving.kill)
        serving.initialise()
        serving.start()
        yield serving.url


class Load:
    """Producers of all topics, and what was acknowledged."""

    def __init__(self, client: pulsar.Client) -> None:
        self._client = client
        self._producers = [
            client.create_producer(
                topic,
                send_timeout_millis=0,
                block_if_queue_full=True,
                max_pending_messages=PENDING,
                batching_enabled=True,
                batching_max_publish_delay_ms=BATCH_DELAY_MS,
            )
            for topic in TOPICS
        ]
        self.sent = 0
        self._failure = ""
        self._counted = threading.Lock()
        self._latencies_s: list[float] = []

    def at_full_speed(self, seconds: float) -> float:
        """Messages per second."""
        before, began_s = self.sent, time.perf_counter()
        payload = bytes(BYTES)
        while time.perf_counter() < began_s + seconds:
            for producer in self._producers:
                producer.send_async(payload, partial(self._acknowledged, None))
                self.sent += 1
        self._flush()
        return (self.sent - before) / (time.perf_counter() - began_s)

    def at_rate(self, per_s: float, seconds: float) -> list[float]:
        """Seconds from when each message was due to its acknowledgement, in order of size."""
        self._latencies_s.clear()
        payload, began_s = bytes(BYTES), time.perf_counter()
        for number in range(round(per_s * seconds)):
            due_s = began_s + number / per_s
            while (early_s := due_s - time.perf_counter()) > 0:
                time.sleep(early_s)
            producer = self._producers[number % len(self._producers)]
            producer.send_async(payload, partial(self._acknowledged, due_s))
            self.sent += 1
        self._flush()
        return sorted(self._latencies_s)

    def read_all(self) -> float:
        """Messages per second."""
        received, ended = itertools.count(1), threading.Event()

        def on_message(consumer: pulsar.Consumer, found: pulsar.Message) -> None:
            consumer.acknowledge(found)
            if next(received) == self.sent:
                ended.set()

        began_s = time.perf_counter()
        for topic in TOPICS:
            self._client.subscribe(
                topic,
                "read",
                message_listener=on_message,
                initial_position=pulsar.InitialPosition.Earliest,
            )
        if not ended.wait(READ_S_MAX):
            raise BenchError(f"{next(received) - 1} of {self.sent} messages came back")
        return self.sent / (time.perf_counter() - began_s)

    def _flush(self) -> None:
        for producer in self._producers:
            producer.flush()
        if self._failure:
            raise BenchError(f"a message was not acknowledged: {self._failure}")

    def _acknowledged(self, due_s: float | None, result: pulsar.Result, _: object) -> None:
        if result != pulsar.Result.Ok:
            self._failure = str(result)
        elif due_s is not None:
            with self._counted:
                self._latencies_s.append(time.perf_counter() - due_s)


def measure(side: str, root: Path, seconds: float) -> Figures:
    with broker(side, root) as url:
        client = connect(url)
        load = Load(client)
        load.at_full_speed(WARMUP_S)
        sent_per_s = load.at_full_speed(seconds)
        latencies_s = load.at_rate(RATE, seconds)
        p50, p99, p999 = (
            1000 * latencies_s[int(share * (len(latencies_s) - 1))] for share in (0.5, 0.99, 0.999)
        )
        found = Figures(sent_per_s, p50, p99, p999, load.read_all())
        client.close()
    print(f"{side}: {found}", file=sys.stderr)
    return found


def table(found: dict[str, list[Figures]]) -> str:
    rows = [
        "| load | bkbox | Java | ratio (least, most) |",
        "|---|--:|--:|--:|",
    ]
    lines = {
        "messages a second, as fast as they are acknowledged": "sent_per_s",
        f"{RATE:,} messages a second: p50, ms": "paced_p50_ms",
        f"{RATE:,} messages a second: p99, ms": "paced_p99_ms",
        f"{RATE:,} messages a second: p99.9, ms": "paced_p999_ms",
        "messages read a second": "received_per_s",
    }
    for line, name in lines.items():
        ours, theirs = (_column(found[side], name) for side in (OURS, THEIRS))
        ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
        form = ",.2f" if name.endswith("_ms") else ",.0f"
        rows.append(
            f"| {line} | {statistics.median(ours):{form}} | {statistics.median(theirs):{form}} "
            f"| {statistics.median(ratios):.2f} ({min(ratios):.2f}, {max(ratios):.2f}) |"
        )
    return "\n".join(rows)


def _column(found: Sequence[Figures], name: str) -> list[float]:
    return [float(getattr(each, name)) for each in found]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.pulsar", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a second for each load")
    parser.add_argument("--dir", type=Path, default=Path.cwd(), help="where the bookies write")
    parser.add_argument("--no-report", action="store_true", help="leave the page as it is")
    given = parser.parse_args()
    if (reason := missing_reason()) is not None:
        print(f"error: {reason}", file=sys.stderr)
        return 1
    quiet = QuietMachine(strict=not given.no_report)
    found: dict[str, list[Figures]] = {OURS: [], THEIRS: []}

    def one_round(number: int, folder: Path) -> dict[str, Figures]:
        order = (OURS, THEIRS) if number % 2 == 0 else (THEIRS, OURS)
        with temporary_folder(folder) as root:
            seconds = 1.0 if given.quick else SECONDS
            return {side: measure(side, root / side, seconds) for side in order}

    try:
        for number in range(given.rounds):
            ones = quiet.measure(f"round {number + 1}", partial(one_round, number, given.dir))
            for side, one in ones.items():
                found[side].append(one)
    except BenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    text = (
        f"Medians of {given.rounds} rounds, {len(TOPICS)} topics, messages of 1 KiB in batches of at most "
        f"{BATCH_DELAY_MS} ms, ensembles 3, 3, 2. {report.machine()}.\n\n{table(found)}"
    )
    print(text)
    if not given.no_report:
        PAGE.write_text(report.replace_between(PAGE.read_text(), "pulsar", text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
