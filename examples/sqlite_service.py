"""A write-ahead log for a service that keeps its data in an SQLite file.

A change is a record first, and takes effect in the file after it is acknowledged; the file remembers, in the same
transaction, which record was the last. So a file that was lost, or restored from an old copy, is brought up to date by
the log, and every record takes effect once. Requests have ids of their callers, so that one that is sent again because
its answer was lost changes nothing.

    python examples/sqlite_service.py --metadata sqlite:cluster.db --database accounts.db transfer req-1 alice bob 10
    python examples/sqlite_service.py --metadata sqlite:cluster.db --database accounts.db balances
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sqlite3

from bkbox.client import connect
from bkbox.client.log import Log, LogOptions, Position

LOG = "accounts"


class Accounts:
    """The SQLite file."""

    def __init__(self, path: str) -> None:
        self._file = sqlite3.connect(path, isolation_level=None)
        self._file.executescript(
            """
            CREATE TABLE IF NOT EXISTS account (name TEXT PRIMARY KEY, balance INTEGER NOT NULL);
            CREATE TABLE IF NOT EXISTS applied (one INTEGER PRIMARY KEY CHECK (one = 1), next TEXT NOT NULL);
            """
        )

    @property
    def next(self) -> Position | None:
        """The first record that has not taken effect."""
        row = self._file.execute("SELECT next FROM applied").fetchone()
        return None if row is None else Position.parse(row[0])

    def apply(self, position: Position, payload: bytes) -> None:
        change = json.loads(payload)
        self._file.execute("BEGIN IMMEDIATE")
        for name, amount in ((change["from"], -change["amount"]), (change["to"], change["amount"])):
            self._file.execute(
                "INSERT INTO account VALUES (?, ?) ON CONFLICT DO UPDATE SET balance = balance + excluded.balance",
                (name, amount),
            )
        self._file.execute("INSERT OR REPLACE INTO applied VALUES (1, ?)", (str(position.after),))
        self._file.execute("COMMIT")

    def balances(self) -> dict[str, int]:
        return dict(self._file.execute("SELECT name, balance FROM account ORDER BY name"))

    def close(self) -> None:
        self._file.close()


async def bring_up_to_date(accounts: Accounts, log: Log) -> int:
    """The number of records that took effect."""
    count = 0
    async for record in log.read(accounts.next):
        accounts.apply(record.position, record.payload)
        count += 1
    return count


async def main() -> None:
    parser = argparse.ArgumentParser(
        description="A service over SQLite with a replicated write-ahead log."
    )
    parser.add_argument("--metadata", required=True)
    parser.add_argument("--database", required=True)
    parser.add_argument("--copies", type=int, default=3)
    commands = parser.add_subparsers(dest="command", required=True)
    transfer = commands.add_parser("transfer")
    for name in ("request", "from", "to"):
        transfer.add_argument(name)
    transfer.add_argument("amount", type=int)
    commands.add_parser("balances")
    given = vars(parser.parse_args())
    accounts = Accounts(given["database"])
    async with connect(given["metadata"]) as client:
        log = Log(client, LOG)
        # Opening the log as its writer fences the process that served before: what is read then is all there is.
        async with await log.open_writer(LogOptions(ensemble_size=given["copies"])) as writer:
            print(f"{await bring_up_to_date(accounts, log)} records were missing in the file")
            if given["command"] == "transfer":
                change = {"from": given["from"], "to": given["to"], "amount": given["amount"]}
                payload = json.dumps(change).encode()
                if writer.last_sequence(given["request"]) is not None:
                    print("done before")
                else:
                    position = await writer.append_once(payload, given["request"], 0)
                    assert position is not None
                    accounts.apply(position, payload)
            for name, balance in accounts.balances().items():
                print(name, balance)
    accounts.close()


if __name__ == "__main__":
    asyncio.run(main())
