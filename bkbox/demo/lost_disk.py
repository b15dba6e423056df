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
from bkbox.demo.state import Scene, Told, ask, must
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


async def lose(scene: Scene) -> Told:
    """Empties a disk, checks that the start is refused, repairs the cookie, starts, watches the repair."""
    show, cluster = scene.show, scene.cluster
    bookie = cluster.bookies[1]
    disk = max((await bookie.status()).disks, key=lambda disk: disk.ledgers)
    must(disk.ledgers > 0, f"no disk of {bookie.name} holds the ledger")
    await bookie.stop()
    path = next(path for path in bookie.disks if str(path) == disk.path)
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    for item in path.iterdir():
        shutil.rmtree(item) if item.is_dir() else item.unlink()
    name = cluster.short(disk.path)
    show.say(
        f"{bookie.name} is stopped, and its disk {name}, on which it has the ledger, is emptied: "
        f"{amount(size)} are gone. Does it start?"
    )
    await _refuses(scene, bookie)
    show.quote(f"$ bkbox cookie repair --yes --config {bookie.config}")
    show.quote(
        cluster.short(await cluster.run("cookie", "repair", "--yes", "--config", bookie.config))
    )

    entries_size = scene.source.size + scene.acknowledged * HEADER_BYTES
    await bookie.start(jobs_network_bytes_per_second=max(1, entries_size // _REPAIR_S))
    await _phase_one(scene, bookie, name)
    async with scene.client() as client:
        await _ask_in_limbo(scene, client, bookie)
        return await _phase_two(scene, client, bookie)


async def _refuses(scene: Scene, bookie: Bookie) -> None:
    status, text = await bookie.start_refused()
    said = [line for line in text.splitlines() if line.startswith("error:")]
    must(
        status == _REFUSED and "cookie repair" in text and bool(said),
        f"{bookie.name} ended with {status}, and does not say what to do: {text}",
    )
    scene.show.quote(f"$ bkbox run --config {bookie.config}")
    scene.show.quote(scene.cluster.short("\n".join(said)))
    scene.show.proved(
        "it refuses, names what differs, and names the one command to run: an empty disk must not pass "
        "for one that never had anything on it"
    )


async def _phase_one(scene: Scene, bookie: Bookie, name: str) -> None:
    status = await bookie.status()
    disk = next(disk for disk in status.disks if disk.path.endswith(name))
    must(disk.crash_class == "disk replaced", f"{name} is classified as {disk.crash_class}")
    phase_one = [reason for reason in status.boot.reasons if reason.startswith("phase one")]
    must(bool(phase_one), f"{bookie.name} has skipped phase one")
    scene.show.quote(f"{name}: {disk.crash_class}: {disk.reason}")
    scene.show.quote("\n".join(phase_one))
    scene.show.proved(
        "phase one is done before the port opens: the ledger is fenced, so that no writer can go on as "
        "if nothing had happened, and in limbo, so that the bookie does not deny what it has lost"
    )


async def _ask_in_limbo(scene: Scene, client: Client, bookie: Bookie) -> None:
    show, ledger, count = scene.show, scene.ledger, scene.acknowledged
    asked = sorted({count // 2, count * 3 // 4, count * 9 // 10})
    answers = await ask(client, bookie.id, ledger, asked)
    for entry, said in zip(asked, answers, strict=True):
        show.quote(f"read entry {entry} of ledger {ledger}: {describe([(bookie.id, said.answer)])}")
        must(said.answer not in _NEGATIVE, f"{bookie.name} denies an entry that it may have lost")
    show.say(
        "The answer for an entry that is not back yet is unknown (EUNKNOWN), never 'no such entry': a "
        "reader or a recovery then asks the others and draws no conclusion. Version 2 of the protocol "
        "says it as EIO. Phase two now closes the ledger by recovery and copies what is missing."
    )


async def _phase_two(scene: Scene, client: Client, bookie: Bookie) -> Told:
    """Waits until limbo is empty, and then checks that everything is back."""
    show, ledger, count = scene.show, scene.ledger, scene.acknowledged
    answers: Counter[str] = Counter()
    began = moved = time.monotonic()
    copied = 0
    with show.progress("repairing", count, "entries") as advance:
        while (limbo := (await bookie.status()).limbo).ledgers > 0:
            if limbo.entries_copied > copied:
                copied, moved = limbo.entries_copied, time.monotonic()
            must(time.monotonic() - moved < _STALLED_S, f"repair is stuck: {_blockers(limbo)}")
            advance(copied)
            for said in await ask(client, bookie.id, ledger, scene.sample(range(count), _PROBES)):
                must(said.answer not in _NEGATIVE, f"{bookie.name} denies an entry while in limbo")
                answers["served" if said.answer is Code.EOK else "unknown"] += 1
            await asyncio.sleep(_POLL_S)
        advance(count)
    took = time.monotonic() - began
    show.say(
        f"{answers.total()} reads meanwhile: {answers['served']} served, {answers['unknown']} unknown, "
        f"0 'no such entry'."
    )
    metadata = await client.metadata(ledger)
    must(
        metadata.state is LedgerState.CLOSED and metadata.last_entry >= count - 1,
        f"ledger {ledger} is {metadata.state.name} at entry {metadata.last_entry}, and entry "
        f"{count - 1} had been acknowledged",
    )
    back = await ask(client, bookie.id, ledger, scene.sample(range(count), _SAMPLE_ENTRIES))
    must(all(said.answer is Code.EOK for said in back), f"{bookie.name} lacks entries after repair")
    show.proved(
        f"limbo is empty after {took:.1f} s: recovery has closed the ledger at entry "
        f"{metadata.last_entry} and written {count - limbo.entries_copied:,} of its last entries back, and "
        f"{limbo.entries_copied:,} were copied from the other bookies, each checked by its digest"
    )
    return Told(
        limbo.entries_copied, limbo.bytes_copied, "a lost disk: refused, fenced, in limbo, repaired"
    )


def _blockers(limbo: Limbo) -> str:
    return "; ".join(blocker.reason for blocker in limbo.blockers) or "no reason is given"
