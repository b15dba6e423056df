"""Step 4: a writer hangs, another client recovers its ledger, and the writer is fenced."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import time

from bkbox.base.ids import LedgerId
from bkbox.client import Client
from bkbox.demo.state import DemoState, StepResult, ask, must
from bkbox.wire.codes import Code
from bkbox.wire.metadata.ledger import LedgerState

_LINES = 200
_WAIT_S = 20.0
_POLL_S = 0.05


async def fence(state: DemoState) -> StepResult:
    """Sends SIGSTOP to the writer, recovers, sends SIGCONT, and checks that the writer fails."""
    output, cluster = state.output, state.cluster
    log = cluster.root / "writer.log"
    with log.open("wb") as errors, (cluster.root / "writer.out").open("wb") as out:
        arguments = [
            "ledger",
            "write",
            "--metadata",
            cluster.metadata,
            "-e",
            "3",
            "-w",
            "3",
            "-a",
            "2",
        ]
        writer = cluster.spawn(*arguments, stdin=subprocess.PIPE, stdout=out, stderr=errors)
    assert writer.stdin is not None
    await cluster.until(lambda: b"writing ledger" in log.read_bytes(), "the first writer", _WAIT_S)
    found = re.search(r"writing ledger (\d+)", log.read_text())
    assert found is not None
    ledger = LedgerId(int(found[1]))
    lines = [f"line {number} of the first writer\n".encode() for number in range(_LINES)]
    writer.stdin.write(b"".join(lines))
    writer.stdin.flush()
    async with state.client() as client:
        await _written(state, client, ledger, _LINES - 1)
        output.explain(
            f"A first writer, process {writer.pid}, has written {_LINES} lines to a second ledger, {ledger}. "
            f"Now it hangs (SIGSTOP): it neither writes nor goes away. A second client recovers its ledger:"
        )
        os.kill(writer.pid, signal.SIGSTOP)
        output.quote(f"$ bkbox ledger recover {ledger}")
        recovered = await cluster.run(
            "ledger", "recover", str(ledger), "--metadata", cluster.metadata
        )
        for line in recovered.splitlines():
            if line.startswith(("state ", "last_entry ", "length ")):
                output.quote(line)
        metadata = await client.metadata(ledger)
        must(
            metadata.state is LedgerState.CLOSED and metadata.last_entry == _LINES - 1,
            f"ledger {ledger} is {metadata.state.name} at {metadata.last_entry}",
        )
        output.explain(
            "The first writer wakes up (SIGCONT), knows nothing of this, and appends a line:"
        )
        os.kill(writer.pid, signal.SIGCONT)
        writer.stdin.write(b"one line too many\n")
        writer.stdin.flush()
        await cluster.until(lambda: writer.poll() is not None, "the first writer to fail", _WAIT_S)
        error_lines = [line for line in log.read_text().splitlines() if line.startswith("error:")]
        output.quote("\n".join(error_lines))
        must(
            writer.returncode != 0 and any("fenced" in line.lower() for line in error_lines),
            f"the first writer was not fenced off: it ended with {writer.returncode}, {error_lines}",
        )
        must(
            (await client.metadata(ledger)).last_entry == _LINES - 1,
            f"the end of ledger {ledger} has moved",
        )
    output.proved(
        "LedgerFenced: at least two of the three bookies refuse it, so no line can slip in behind the "
        "end that the second client has settled"
    )
    return StepResult(_LINES, sum(map(len, lines)), "a hung writer is fenced off")


async def _written(state: DemoState, client: Client, ledger: LedgerId, entry: int) -> None:
    """Waits until every bookie has the entry, and so all before it."""
    deadline = time.monotonic() + _WAIT_S
    for bookie in state.cluster.bookies:
        while (await ask(client, bookie.id, ledger, [entry]))[0].answer is not Code.EOK:
            must(
                time.monotonic() < deadline, f"{bookie.name} does not get the first writer's lines"
            )
            await asyncio.sleep(_POLL_S)
