"""The foreign load: what it wrote is read back by bkbox's client, and what the bookie refuses is an error."""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bkbox import client as clients
from bkbox.bench.load import Shape
from bkbox.bench.server import Bookie, running
from bkbox.errors import BenchError
from bkbox.wire.metadata.ledger import DigestType
from tests.bench import foreign
from tests.harness.java import CHECKOUT

LEDGERS, ENTRIES, SIZE = 3, 400, 100


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """On a disk: temporary folders are in memory on some hosts."""
    build = CHECKOUT / "build"
    build.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="foreign-", dir=build) as made:
        yield Path(made)


@pytest.fixture(scope="module")
def program(folder: Path) -> Path:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    return foreign.compiled(folder)


async def _made(metadata: str) -> list[int]:
    """Ledgers whose writer is gone: they are open, and have no entry."""
    found = []
    async with clients.connect(metadata) as client:
        for _ in range(LEDGERS):
            writer = await client.create_ledger(1, 1, 1, DigestType.DUMMY, b"")
            await writer.abort()
            found.append(int(writer.ledger_id))
    return found


async def _read(metadata: str, ledger: int) -> list[bytes]:
    async with clients.connect(metadata) as client:
        reader = await client.open_ledger(ledger)
        return [entry.payload async for entry in reader.read()]


def test_what_it_wrote_is_read_back(folder: Path, program: Path) -> None:
    metadata = f"sqlite:{folder / 'metadata.db'}"
    bookie = Bookie(folder / "bookie", metadata, {}, random.Random(7))
    with running(bookie):
        ledgers = asyncio.run(_made(metadata))
        assert ledgers == list(range(ledgers[0], ledgers[0] + LEDGERS))
        shape = Shape(LEDGERS, 2, 16, SIZE)
        found = foreign.run(program, bookie.address, shape, ledgers[0], entries=ENTRIES)
        assert found["requests"] == found["sent"] == LEDGERS * ENTRIES
        assert 0 < found["p50_us"] <= found["p99_us"] <= found["p999_us"] <= found["max_us"]
        expected = [
            bytes(ord("a") + (entry + place) % 26 for place in range(SIZE))
            for entry in range(ENTRIES)
        ]
        for ledger in ledgers:
            assert asyncio.run(_read(metadata, ledger)) == expected
        timed = foreign.run(program, bookie.address, shape, 1 << 40, seconds=1.0, warmup_s=0.1)
        assert timed["sent"] > timed["requests"] > 0
        with pytest.raises(BenchError, match="adds were refused"):  # they are closed now
            foreign.run(program, bookie.address, shape, ledgers[0], entries=1)


def test_a_server_that_is_not_there_is_an_error(program: Path) -> None:
    with pytest.raises(BenchError, match="connect: Connection refused"):
        foreign.run(program, ("127.0.0.1", 1), Shape(1, 1, 1, 1), 1, entries=1)
