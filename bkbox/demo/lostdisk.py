"""Step 3: a disk is lost with all that was on it, and comes back from the other bookies."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import Counter

from bkbox.admin.status import Status
from bkbox.client import Client
from bkbox.demo.scene import Scene, Told, ask, must
from bkbox.demo.show import amount
from bkbox.demo.stage import Bookie
from bkbox.protocol.events import describe
from bkbox.wire.codes import Code
from bkbox.wire.digest import HEADER_BYTES
from bkbox.wire.ledger import LedgerState

_REFUSED = 4
"""Exit status of a bookie whose cookies do not match."""

_REPAIR_S = 5
"""Repair is slowed down to about this, so that there is time to look."""

_STALLED_S = 60.0
_POLL_S = 0.1
_PROBES = 10
_SAMPLE_ENTRIES = 300
_NEGATIVE = (Code.ENOENTRY, Code.ENOLEDGER)


async def lose(scene: Scene) -> Told:
    """Empty a disk, see the start refused, repair the cookie, start, watch the repair."""
    show, stage = scene.show, scene.stage
    bookie = stage.bookies[1]
    disk = max((await bookie.status()).disks, key=lambda disk: disk.ledgers)
    must(disk.ledgers > 0, f"no disk of {bookie.name} holds the ledger")
    await bookie.stop()
    path = next(path for path in bookie.disks if str(path) == disk.path)
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    for item in path.iterdir():
        shutil.rmtree(item) if item.is_dir() else item.unlink()
    name = stage.short(disk.path)
    show.say(
        f"{bookie.name} is stopped, and its disk {name}, on which it has the ledger, is emptied: "
        f"{amount(size)} are gone. Does it start?"
    )
    await _refuses(scene, bookie)
    show.quote(f"$ bkbox cookie repair --yes --config {bookie.config}")
    show.quote(stage.short(await stage.run("cookie", "repair", "--yes", "--config", bookie.config)))

    entries_size = scene.source.size + scene.acknowledged * HEADER_BYTES
    await bookie.start(repair_bytes_per_second=max(1, entries_size // _REPAIR_S))
    async with scene.client() as client:
        return await _repaired(scene, client, bookie, name)


async def _refuses(scene: Scene, bookie: Bookie) -> None:
    status, text = await bookie.start_refused()
    said = [line for line in text.splitlines() if line.startswith("error:")]
    must(
        status == _REFUSED and "cookie repair" in text and bool(said),
        f"{bookie.name} ended with {status}, and does not say what to do: {text}",
    )
    scene.show.quote(f"$ bkbox run --config {bookie.config}")
    scene.show.quote(scene.stage.short("\n".join(said)))
    scene.show.proved(
        "it refuses, names what differs, and names the one command to run: an empty disk must not pass "
        "for one that never had anything on it"
    )


async def _repaired(scene: Scene, client: Client, bookie: Bookie, name: str) -> Told:
    show, ledger = scene.show, scene.ledger
    began = time.monotonic()
    status = await bookie.status()
    disk = next(disk for disk in status.disks if disk.path.endswith(name))
    must(disk.crash_class == "disk replaced", f"{name} is classified as {disk.crash_class}")
    must(status.limbo.ledgers > 0, "phase one has put no ledger into limbo")
    show.quote(f"{name}: {disk.crash_class}: {disk.reason}")
    for reason in status.boot.reasons:
        if reason.startswith("phase one"):
            show.quote(reason)
    show.proved(
        "phase one is done before the port opens: the ledger is fenced, so that no writer can go on as "
        "if nothing had happened, and in limbo, so that the bookie does not deny what it has lost"
    )

    last = scene.acknowledged - 1
    asked = sorted({last // 2, last * 3 // 4, last * 9 // 10})
    answers = await ask(client, bookie.id, ledger, asked)
    for entry, said in zip(asked, answers, strict=True):
        show.quote(f"read entry {entry} of ledger {ledger}: {describe([(bookie.id, said.answer)])}")
    must(
        not any(said.answer in _NEGATIVE for said in answers),
        f"{bookie.name} denies entries that it may have lost",
    )
    show.say(
        "The answer for an entry that is not back yet is unknown (EUNKNOWN), never 'no such entry': a "
        "reader or a recovery then asks the others and draws no conclusion. Version 2 of the protocol "
        "says it as EIO. Phase two now closes the ledger by recovery and copies what is missing."
    )

    counts: Counter[str] = Counter()
    copied, moved = 0, began
    with show.progress("repairing", scene.acknowledged, "entries") as advance:
        while status.limbo.ledgers > 0:
            if status.limbo.entries_copied > copied:
                copied, moved = status.limbo.entries_copied, time.monotonic()
            must(time.monotonic() - moved < _STALLED_S, f"repair is stuck: {_blockers(status)}")
            advance(copied)
            sample = scene.sample(range(scene.acknowledged), _PROBES)
            for said in await ask(client, bookie.id, ledger, sample):
                must(said.answer not in _NEGATIVE, f"{bookie.name} denies an entry while in limbo")
                counts["served" if said.answer is Code.EOK else "unknown"] += 1
            await asyncio.sleep(_POLL_S)
            status = await bookie.status()
        advance(scene.acknowledged)
    took = time.monotonic() - began

    show.say(
        f"{counts.total()} reads meanwhile: {counts['served']} served, {counts['unknown']} unknown, 0 'no "
        f"such entry'."
    )
    metadata = await client.metadata(ledger)
    must(
        metadata.state is LedgerState.CLOSED and metadata.last_entry >= last,
        f"ledger {ledger} is {metadata.state.name} at entry {metadata.last_entry}, acknowledged {last}",
    )
    back = await ask(client, bookie.id, ledger, scene.sample(range(last + 1), _SAMPLE_ENTRIES))
    must(all(said.answer is Code.EOK for said in back), f"{bookie.name} lacks entries after repair")
    show.proved(
        f"limbo is empty after {took:.1f} s: recovery has closed the ledger at entry "
        f"{metadata.last_entry}, and all {scene.acknowledged:,} entries are back from the other bookies: "
        f"{status.limbo.entries_copied:,} copied one by one, each checked by its digest, the newest "
        f"by the recovery itself"
    )
    return Told(
        status.limbo.entries_copied,
        status.limbo.bytes_copied,
        "a lost disk: refused, fenced, in limbo, repaired",
    )


def _blockers(status: Status) -> str:
    return "; ".join(blocker.reason for blocker in status.limbo.blockers) or "no reason is given"
