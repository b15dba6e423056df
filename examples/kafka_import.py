"""Topics of Kafka to logs: each partition becomes a log ``<topic>.<partition>``.

Reads a dump as kcat writes it, one JSON object a line:

    kcat -b broker:9092 -C -t orders -e -J > orders.jsonl
    python examples/kafka_import.py --metadata sqlite:cluster.db orders.jsonl

A record's payload is the JSON object without topic, partition and offset, so keys and headers are kept; its time is
that of the message. The offset is its sequence number: run again, with the same dump or a later one that overlaps with
it, nothing is written twice.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

from bkbox.client import connect
from bkbox.client.log import Compression, Log, LogOptions, LogWriter

WRITER_ID = "kafka"
AT_ONCE = 1000


def messages(dump: Path) -> Iterator[tuple[str, int, int | None, bytes]]:
    """Name of the log, offset, time and payload of each line. Raises SystemExit for what is no line of kcat's."""
    with dump.open() as lines:
        for number, line in enumerate(lines, 1):
            try:
                found = json.loads(line)
                topic, partition, offset = (
                    found["topic"],
                    int(found["partition"]),
                    int(found["offset"]),
                )
                time_ms = found.get("ts")
            except (ValueError, KeyError, TypeError) as error:
                raise SystemExit(
                    f"{dump}, line {number}: not as kcat -J writes it: {error!r}"
                ) from None
            kept = {key: found[key] for key in ("key", "payload", "headers") if key in found}
            name = re.sub(r"[^A-Za-z0-9._-]", "_", f"{topic}.{partition}")
            yield name, offset, time_ms, json.dumps(kept).encode()


async def main() -> None:
    parser = argparse.ArgumentParser(description="Write a dump of Kafka's topics to logs.")
    parser.add_argument("--metadata", required=True)
    parser.add_argument("--copies", type=int, default=3)
    parser.add_argument(
        "--compression", default="none", choices=[each.name.lower() for each in Compression]
    )
    parser.add_argument("dumps", nargs="+", type=Path, metavar="DUMP")
    given = parser.parse_args()
    options = LogOptions(
        ensemble_size=given.copies, compression=Compression[given.compression.upper()]
    )
    written: dict[str, int] = {}
    async with connect(given.metadata) as client, AsyncExitStack() as stack:
        writers: dict[str, LogWriter] = {}
        under_way: list[asyncio.Task[object]] = []
        for dump in given.dumps:
            for name, offset, time_ms, payload in messages(dump):
                if name not in writers:
                    opened = await Log(client, name).open_writer(options)
                    writers[name] = await stack.enter_async_context(opened)
                writer = writers[name]
                last = writer.last_sequence(WRITER_ID)
                if last is not None and offset <= last:
                    continue
                written[name] = written.get(name, 0) + 1
                append = writer.append_once(payload, WRITER_ID, offset, timestamp_ms=time_ms)
                under_way.append(asyncio.create_task(append))
                if len(under_way) >= AT_ONCE:
                    await asyncio.gather(*under_way)
                    under_way.clear()
        await asyncio.gather(*under_way)
        for name in writers:
            print(f"{name}: {written.get(name, 0)} records")


if __name__ == "__main__":
    asyncio.run(main())
