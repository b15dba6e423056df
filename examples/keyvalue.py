"""A replicated key-value store over a log.

Every change is a record; the state is what replaying the records gives. The serving process is elected, opens the log
as its writer, which fences the process that served before, and replays it: so it has every acknowledged change.
What protects the state is the log, not the election.

    python examples/keyvalue.py --metadata sqlite:cluster.db set colour blue
    python examples/keyvalue.py --metadata sqlite:cluster.db get colour
    python examples/keyvalue.py --metadata sqlite:cluster.db standby    # prints changes, takes over when it can
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from bkbox.client import Client, connect
from bkbox.client.log import LeaderElection, Log, LogOptions, LogWriter, Position, Record
from bkbox.errors import NoSuchLogError

LOG = "keyvalue"


class Store:
    """The state, and how far in the log it is."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.next: Position | None = None

    def apply(self, record: Record) -> None:
        change = json.loads(record.payload)
        if change["value"] is None:
            self.values.pop(change["key"], None)
        else:
            self.values[change["key"]] = change["value"]
        self.next = record.position.after

    async def catch_up(self, log: Log) -> None:
        async for record in log.read(self.next):
            self.apply(record)


class Leader:
    """Serves changes; each is durable when the call returns."""

    def __init__(self, log: Log, writer: LogWriter, store: Store) -> None:
        self._log = log
        self._writer = writer
        self.store = store

    async def set(self, key: str, value: str | None) -> Position:
        change = json.dumps({"key": key, "value": value}).encode()
        position = await self._writer.append(change)
        self.store.apply(Record(position, change, 0, "", -1))
        return position


@asynccontextmanager
async def leading(client: Client, store: Store, options: LogOptions) -> AsyncIterator[Leader]:
    """Be elected, end the one before, and know everything that it has done."""
    log = Log(client, LOG)
    async with LeaderElection(client, LOG, f"process {os.getpid()}") as election:
        await election.won()
        async with await log.open_writer(options) as writer:
            await store.catch_up(log)
            yield Leader(log, writer, store)


async def main() -> None:
    parser = argparse.ArgumentParser(description="A replicated key-value store over a log.")
    parser.add_argument("--metadata", required=True)
    parser.add_argument("--copies", type=int, default=3)
    commands = parser.add_subparsers(dest="command", required=True)
    setting = commands.add_parser("set")
    setting.add_argument("key")
    setting.add_argument("value")
    commands.add_parser("get").add_argument("key")
    commands.add_parser("delete").add_argument("key")
    commands.add_parser("standby")
    given = parser.parse_args()
    options = LogOptions(ensemble_size=given.copies)
    store = Store()
    async with connect(given.metadata) as client:
        if given.command == "get":
            with suppress(NoSuchLogError):
                await store.catch_up(Log(client, LOG))
            print(store.values.get(given.key, ""))
        elif given.command == "standby":
            async for record in Log(client, LOG).tail():
                store.apply(record)
                print(record.position, record.payload.decode(), flush=True)
        else:
            async with leading(client, store, options) as leader:
                value = given.value if given.command == "set" else None
                print(await leader.set(given.key, value))


if __name__ == "__main__":
    asyncio.run(main())
