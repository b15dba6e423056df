"""Step 5: another bookie is stopped, and every byte is read back."""

from __future__ import annotations

import hashlib

from bkbox.base.text import quoted
from bkbox.client import Client, LedgerReader
from bkbox.demo.output import Advance, amount
from bkbox.demo.source import Stored
from bkbox.demo.state import DemoState, StepResult, ask, must
from bkbox.wire.codes import Code

_FIRST_SHOWN, _LAST_SHOWN = 12, 4
_SAMPLE_ENTRIES = 100


async def read_back(state: DemoState) -> StepResult:
    """Stops bookie 3, reads, and compares the SHA-256 of each file."""
    output, cluster = state.output, state.cluster
    first, second, third = cluster.bookies
    await third.stop()
    output.explain(
        f"{third.name}, the only one to which nothing has happened, is stopped. What is read now comes from "
        f"{first.name}, which was killed, and {second.name}, whose disk was lost."
    )
    async with state.client() as client:
        await _only_on_the_repaired_disk(state, client)
        reader = await client.open_ledger(state.ledger)
        must(
            reader.last_add_confirmed >= state.acknowledged - 1, "the end of the ledger is too low"
        )
        size = 0
        with output.progress("reading", state.source.size, "bytes") as advance:
            for file in state.manifest:
                size = await _check(reader, file, size, advance)
    _print(state)
    output.proved(
        f"{len(state.manifest):,} files, {amount(size)}: every byte is as it was written, by SHA-256"
    )
    return StepResult(
        state.acknowledged, size, f"{len(state.manifest):,} files identical, SHA-256 each"
    )


async def _only_on_the_repaired_disk(state: DemoState, client: Client) -> None:
    first, second, _ = state.cluster.bookies
    sample = state.sample(state.missed, _SAMPLE_ENTRIES)
    absent = [report.answer for report in await ask(client, first.id, state.ledger, sample)]
    there = [report.answer for report in await ask(client, second.id, state.ledger, sample)]
    must(all(answer is Code.EOK for answer in there), f"{second.name} lacks repaired entries")
    alone = sum(answer is Code.ENOENTRY for answer in absent)
    if alone:
        state.output.explain(
            f"Some of it can come from the repaired disk only: of {len(sample)} entries written while "
            f"{first.name} was dead, it has {len(sample) - alone}, and {second.name} has all."
        )


async def _check(reader: LedgerReader, file: Stored, size: int, advance: Advance) -> int:
    digest = hashlib.sha256()
    if file.size:
        async for entry in reader.read(file.first, file.last):
            digest.update(entry.payload)
            size += len(entry.payload)
            advance(size)
    must(
        digest.hexdigest() == file.sha256,
        f"{file.name} was read back with SHA-256 {digest.hexdigest()}, written with {file.sha256}",
    )
    return size


def _print(state: DemoState) -> None:
    lines = [f"{file.sha256}  {_printable(file.name)}" for file in state.manifest]
    hidden = len(lines) - _FIRST_SHOWN - _LAST_SHOWN
    if state.output.shortens and hidden > 0:
        lines[_FIRST_SHOWN:-_LAST_SHOWN] = [f"... and {hidden:,} more (all with --plain)"]
    for line in lines:
        state.output.line(line)


def _printable(name: str) -> str:
    return "".join(letter if letter.isprintable() else quoted(letter)[1:-1] for letter in name)
