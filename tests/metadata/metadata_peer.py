"""A second process for the tests of the metadata store: ``metadata_peer.py URI COMMAND ARGS…``.

It prints ``ready`` first, then a line for each thing that was answered.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import bkbox
from bkbox.base.ids import BookieId, EntryId, LedgerId
from bkbox.errors import VersionConflictError
from bkbox.metadata import connect, create
from bkbox.metadata.base import MetadataStore
from bkbox.wire.metadata.ledger import Fragment, LedgerMetadata, LedgerState
from bkbox.wire.metadata.service_info import rpc_service_info


def ledger_of(number: int, **changes: Any) -> LedgerMetadata:
    """An open ledger on three bookies."""
    ensemble = (BookieId("a:1"), BookieId("b:2"), BookieId("c:3"))
    metadata = LedgerMetadata(
        ledger_id=LedgerId(number),
        ensemble_size=3,
        write_quorum=3,
        ack_quorum=2,
        state=LedgerState.OPEN,
        fragments=(Fragment(EntryId(0), ensemble),),
        password=b"secret",
    )
    return replace(metadata, **changes)


def count_of(metadata: LedgerMetadata) -> int:
    return int(dict(metadata.custom).get("count", b"0"))


@contextmanager
def peer(uri: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """The process, ready; killed and waited for at the end."""
    environment = os.environ | {"PYTHONPATH": str(Path(bkbox.__file__).parents[1])}
    process = subprocess.Popen(
        [sys.executable, __file__, uri, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


async def _increment(store: MetadataStore, number: str, times: str) -> None:
    """Add one to a counter in the ledger's custom metadata, by compare-and-set."""
    done = 0
    while done < int(times):
        found = await store.read_ledger(LedgerId(int(number)))
        custom = (("count", b"%d" % (count_of(found.value) + 1)),)
        try:
            written = await store.write_ledger(replace(found.value, custom=custom), found.version)
        except VersionConflictError:
            continue
        done += 1
        print(count_of(written.value), flush=True)


async def _register(store: MetadataStore, *bookies: str) -> None:
    for bookie in bookies:
        await store.register(BookieId(bookie), rpc_service_info("peer", 3181), read_only=False)
    print("registered", flush=True)
    await asyncio.to_thread(sys.stdin.readline)


async def _ids(store: MetadataStore, times: str) -> None:
    for _ in range(int(times)):
        print(await store.new_ledger_id(), flush=True)


async def _instance(store: MetadataStore) -> None:
    print(await store.instance_id(), flush=True)


async def _work(store: MetadataStore, ledger: str) -> None:
    """Be at work on a ledger, and auditor."""
    tree = store.under_replication
    assert await tree.acquire(LedgerId(int(ledger)), "peer") is not None
    assert await tree.candidacy("peer:1").is_elected()
    print("at work", flush=True)
    await asyncio.to_thread(sys.stdin.readline)


COMMANDS = {
    "increment": _increment,
    "register": _register,
    "ids": _ids,
    "instance": _instance,
    "work": _work,
}


async def main(uri: str, command: str, *arguments: str) -> None:
    print("ready", flush=True)
    async with await (create if command == "instance" else connect)(uri) as store:
        await COMMANDS[command](store, *arguments)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
