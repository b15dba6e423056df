"""Ledgers of a cluster of tiny bookies that lose what they have, and commands about them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from click.testing import CliRunner, Result

from bkbox.cli.main import main
from bkbox.client import connect
from tests.client.tinybookie import Bookies


def on_its_loop(cluster: Bookies, change: Callable[[], None]) -> None:
    async def run() -> None:
        change()

    asyncio.run_coroutine_threadsafe(run(), cluster.loop).result(30)


def run(cluster: Bookies, *words: object) -> Result:
    done = CliRunner().invoke(main, ["ledger", *map(str, words), "--metadata", cluster.uri])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def documents(done: Result) -> Any:
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def write(cluster: Bookies, entries: int, *, close: bool = False, count: int = 1) -> list[int]:
    """Ledgers with all copies of their entries, E = WQ = 3, AQ = 2."""

    async def go() -> list[int]:
        found = []
        async with connect(cluster.uri) as client:
            for _ in range(count):
                writer = await client.create_ledger()
                for entry in range(entries):
                    await writer.append(b"%d" % entry)
                while any(
                    writer.ledger_id not in each.ledgers
                    or len(each.ledgers[writer.ledger_id].entries) < entries
                    for each in cluster.bookies.values()
                ):
                    await asyncio.sleep(0.002)
                await (writer.close() if close else writer.abort())
                found.append(writer.ledger_id)
        return found

    return asyncio.run(go())


def lose(cluster: Bookies, ledgers: list[int], *, keep: tuple[str, ...] = ()) -> None:
    """The power fails: what was not kept is in limbo and has nothing."""

    def change() -> None:
        for name, bookie in cluster.bookies.items():
            if name not in keep:
                bookie.limbo = True
                for ledger in ledgers:
                    bookie.ledgers[ledger].entries.clear()

    on_its_loop(cluster, change)
