"""Step 3: a disk is lost with all its data, which is restored from the other bookies."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import Counter

from bkbox.api.admin.status import Limbo
from bkbox.client import Client
from bkbox.demo.cluster import Bookie
from bkbox.demo.output import amount
from bkbox.demo.state import DemoState, StepResult, ask, must
from bkbox.protocol.events import describe
from bkbox.wire.codes import Code
from bkbox.wire.digest import HEADER_BYTES
from bkbox.wire.metadata.ledger import LedgerState

_REFUSED = 4
"""Exit status of a bookie whose cookies do not match."""

_REPAIR_S = 8
"""The repair is throttled to take about this many seconds, so that it can be watched."""

_STALLED_S = 60.0
_POLL_S = 0.1
_PROBES = 10
_SAMPLE_ENTRIES = 2_000
_NEGATIVE = (Code.ENOENTRY, Code.ENOLEDGER)


async def lose(state: DemoState) -> StepResult:
    """Empties a disk, checks that the start is refused, repairs the cookie, starts, watches the repair."""
    output, cluster = state.output, state.cluster
    bookie = cluster.bookies[1]
    disk = max((await bookie.status()).disks, key=lambda disk: disk.ledgers)
    must(disk.ledgers > 0, f"no disk of {bookie.name} holds the ledger")
    await bookie.stop()
    path = next(path for path in bookie.disks if str(path) == disk.path)
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    for item in path.iterdir():
        shutil.rmtree(item) if item.is_dir() else item.unlink()
    name = cluster.short(disk.path)
    output.explain(
        f"{bookie.name} is stopped, and its disk {name}, on which it has the ledger, is emptied: "
        f"{amount(size)} are gone. Does it start?"
    )
    await _refuses(state, bookie)
    output.quote(f"$ bkbox cookie repair --yes --config {bookie.config}")
    output.quote(
        cluster.short(await cluster.run("cookie", "repair", "--yes", "--config", bookie.config))
    )

    entries_size = state.source.size + state.acknowledged * HEADER_BYTES
    await bookie.start(jobs_network_bytes_per_second=max(1, entries_size // _REPAIR_S))
    await _phase_one(state, bookie, name)
    async with state.client() as client:
        await _ask_in_limbo(state, client, bookie)
        return await _phase_two(state, client, bookie)


async def _refuses(state: DemoState, bookie: Bookie) -> None:
    status, text = await bookie.start_refused()
    reply = [line for line in text.splitlines() if line.startswith("error:")]
    must(
        status == _REFUSED and "cookie repair" in text and bool(reply),
        f"{bookie.name} ended with {status}, and does not say what to do: {text}",
    )
    state.output.quote(f"$ bkbox run --config {bookie.config}")
    state.output.quote(state.cluster.short("\n".join(reply)))
    state.output.proved(
        "it refuses, names what differs, and names the one command to run: an empty disk must not pass "
        "for one that never had anything on it"
    )


async def _phase_one(state: DemoState, bookie: Bookie, name: str) -> None:
    status = await bookie.status()
    disk = next(disk for disk in status.disks if disk.path.endswith(name))
    must(disk.crash_class == "disk replaced", f"{name} is classified as {disk.crash_class}")
    phase_one = [reason for reason in status.boot.reasons if reason.startswith("phase one")]
    must(bool(phase_one), f"{bookie.name} has skipped phase one")
    state.output.quote(f"{name}: {disk.crash_class}: {disk.reason}")
    state.output.quote("\n".join(phase_one))
    state.output.proved(
        "phase one is done before the port opens: the ledger is fenced, so that no writer can go on as "
        "if nothing had happened, and in limbo, so that the bookie does not deny what it has lost"
    )


async def _ask_in_limbo(state: DemoState, client: Client, bookie: Bookie) -> None:
    output, ledger, count = state.output, state.ledger, state.acknowledged
    chosen = sorted({count // 2, count * 3 // 4, count * 9 // 10})
    replies = await ask(client, bookie.id, ledger, chosen)
    for entry, reply in zip(chosen, replies, strict=True):
        output.quote(
            f"read entry {entry} of ledger {ledger}: {describe([(bookie.id, reply.answer)])}"
        )
        must(reply.answer not in _NEGATIVE, f"{bookie.name} denies an entry that it may have lost")
    output.explain(
        "The answer for an entry that is not back yet is unknown (EUNKNOWN), never 'no such entry': a "
        "reader or a recovery then asks the others and draws no conclusion. Version 2 of the protocol "
        "says it as EIO. Phase two now closes the ledger by recovery and copies what is missing."
    )


async def _phase_two(state: DemoState, client: Client, bookie: Bookie) -> StepResult:
    """Waits until limbo is empty, and then checks that everything is back."""
    output, ledger, count = state.output, state.ledger, state.acknowledged
    replies: Counter[str] = Counter()
    began = moved = time.monotonic()
    copied = 0
    with output.progress("repairing", count, "entries") as advance:
        while (limbo := (await bookie.status()).limbo).ledgers > 0:
            if limbo.entries_copied > copied:
                copied, moved = limbo.entries_copied, time.monotonic()
            must(time.monotonic() - moved < _STALLED_S, f"repair is stuck: {_blockers(limbo)}")
            advance(copied)
            for reply in await ask(client, bookie.id, ledger, state.sample(range(count), _PROBES)):
                must(reply.answer not in _NEGATIVE, f"{bookie.name} denies an entry while in limbo")
                replies["served" if reply.answer is Code.EOK else "unknown"] += 1
            await asyncio.sleep(_POLL_S)
        advance(count)
    took = time.monotonic() - began
    output.explain(
        f"{replies.total()} reads meanwhile: {replies['served']} served, {replies['unknown']} unknown, "
        f"0 'no such entry'."
    )
    metadata = await client.metadata(ledger)
    must(
        metadata.state is LedgerState.CLOSED and metadata.last_entry >= count - 1,
        f"ledger {ledger} is {metadata.state.name} at entry {metadata.last_entry}, and entry "
        f"{count - 1} had been acknowledged",
    )
    back = await ask(client, bookie.id, ledger, state.sample(range(count), _SAMPLE_ENTRIES))
    must(
        all(reply.answer is Code.EOK for reply in back), f"{bookie.name} lacks entries after repair"
    )
    output.proved(
        f"limbo is empty after {took:.1f} s: recovery has closed the ledger at entry "
        f"{metadata.last_entry} and written {count - limbo.entries_copied:,} of its last entries back, and "
        f"{limbo.entries_copied:,} were copied from the other bookies, each checked by its digest"
    )
    return StepResult(
        limbo.entries_copied, limbo.bytes_copied, "a lost disk: refused, fenced, in limbo, repaired"
    )


def _blockers(limbo: Limbo) -> str:
    return "; ".join(blocker.reason for blocker in limbo.blockers) or "no reason is given"
