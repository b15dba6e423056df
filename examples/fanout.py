"""Many readers of one log, each with a place of its own.

A reader writes down the position behind the last record that it has dealt with, and begins there when it comes back: it
misses nothing, and after a crash it sees at most the records again that it had not yet written down.

    python examples/fanout.py --metadata sqlite:cluster.db --log orders --place billing.position
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

from bkbox.client import connect
from bkbox.client.log import Log, Position, Record
from bkbox.errors import LogTruncatedError


class Place:
    """A position in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Position | None:
        return Position.parse(self._path.read_text()) if self._path.exists() else None

    def write(self, position: Position) -> None:
        """At once or not at all."""
        new = self._path.with_suffix(".new")
        new.write_text(str(position))
        os.replace(new, self._path)


async def follow(log: Log, place: Place, handle: Callable[[Record], Awaitable[bool]]) -> None:
    """Hand every record to ``handle``, until that says False."""
    while True:
        try:
            async with aclosing(log.tail(place.read())) as records:
                async for record in records:
                    goes_on = await handle(record)
                    place.write(record.position.after)
                    if not goes_on:
                        return
        except LogTruncatedError as error:
            print(f"this reader was too slow: {error}")
            place.write((await log.info()).start)


async def main() -> None:
    parser = argparse.ArgumentParser(description="Follow a log, with a place that is kept.")
    parser.add_argument("--metadata", required=True)
    parser.add_argument("--log", required=True)
    parser.add_argument("--place", type=Path, required=True)
    parser.add_argument("--until", help="end after a record with this payload")
    given = parser.parse_args()

    async def show(record: Record) -> bool:
        print(record.position, record.payload.decode().rstrip("\n"), flush=True)
        return record.payload.decode().rstrip("\n") != given.until

    async with connect(given.metadata) as client:
        await follow(Log(client, given.log), Place(given.place), show)


if __name__ == "__main__":
    asyncio.run(main())
