"""Steps 1 and 2: real data goes into a ledger, and a bookie dies in the middle of it.

The writer of step 1 is the writer of step 2. At the end it is gone without having closed the
ledger, as a process that died would be: another client has to recover the ledger.
"""

from __future__ import annotations

import asyncio

from bkbox.demo.output import amount
from bkbox.demo.state import DemoState, StepResult, ask, must
from bkbox.demo.writing import Writing
from bkbox.wire.codes import Code

_SAMPLE_ENTRIES = 200

# Shares of the input.
_KILLED_AT = 0.4
_DEAD_BY = 0.5
_BACK_AT = 0.7


async def append(state: DemoState) -> StepResult:
    """Step 1: writes until the moment of the kill."""
    output, source = state.output, state.source
    client = await state.open.enter_async_context(state.client())
    writer = await client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
    state.ledger = writer.ledger_id
    state.writing = Writing(client, writer, source, state.manifest)
    output.explain(
        f"A ledger is a log with one writer. Ledger {writer.ledger_id} is created with E=3, WQ=3, AQ=2: "
        f"each entry goes to all three bookies and is acknowledged when two of them have it. They run "
        f"with ack_after = write: no journal, no sync, an entry counts once the kernel has it."
    )
    output.explain(
        f"Into it goes {source.title}: {len(source.files):,} files, {amount(source.size)}, in entries of at "
        f"most {source.entry_bytes:,} bytes."
    )
    with output.progress("writing", source.size, "bytes") as advance:
        await state.writing.to(_KILLED_AT, advance)
    output.proved(
        f"{state.writing.acknowledged:,} entries acknowledged, {amount(writer.length)}; the writer goes on"
    )
    return StepResult(
        state.writing.acknowledged, writer.length, "appends acknowledged by two of three bookies"
    )


async def kill(state: DemoState) -> StepResult:
    """Step 2: kills bookie 1, writes on, restarts it."""
    output, source, writing = state.output, state.source, state.writing
    assert writing is not None
    bookie = state.cluster.bookies[0]
    before, length_before = writing.acknowledged, writing.writer.length
    sample = state.sample(range(before), _SAMPLE_ENTRIES)
    replies_before = await ask(writing.client, bookie.id, state.ledger, sample)

    output.explain(
        f"All processes of {bookie.name} get SIGKILL while entries are on their way to it. With only three "
        f"bookies there is no spare one to take its place."
    )
    with output.progress("writing", source.size, "bytes", length_before) as advance:
        pids, _ = await asyncio.gather(bookie.kill(), writing.to(_DEAD_BY, advance))
        dead_from = writing.acknowledged
        await writing.to(_BACK_AT, advance)
    state.missed = range(dead_from, writing.acknowledged)
    output.proved(
        f"{len(pids)} processes killed ({', '.join(map(str, pids))}), and the writer went on: "
        f"{len(state.missed):,} entries were acknowledged by the two bookies left while {bookie.name} "
        f"was dead"
    )

    await bookie.start()
    for disk in (await bookie.status()).disks:
        must(
            disk.crash_class == "process crash",
            f"{disk.path} calls this a {disk.crash_class}: {disk.reason}",
        )
        output.quote(f"{state.cluster.short(disk.path)}: {disk.crash_class}: {disk.reason}")
    async with state.client() as client:  # a new one: the writer's avoids a failed bookie
        now = await ask(client, bookie.id, state.ledger, sample)
    lost = [
        entry
        for entry, then, since in zip(sample, replies_before, now, strict=True)
        if then.answer is Code.EOK and then != since
    ]
    must(
        not lost,
        f"{bookie.name} had entries {', '.join(map(str, lost[:5]))} and does not give them any more",
    )
    readable = sum(each.answer is Code.EOK for each in replies_before)
    output.proved(
        f"{bookie.name} is back and knows what happened to it: a process crash, in which nothing that "
        f"was written is lost, so nothing needs repair. {readable} entries that it had, asked of it alone, "
        f"came back byte for byte"
    )

    with output.progress("writing", source.size, "bytes", writing.writer.length) as advance:
        await writing.to(1, advance)
    state.acknowledged, length = writing.acknowledged, writing.writer.length
    await writing.writer.abort()
    await state.open.aclose()
    output.explain(
        f"All {state.acknowledged:,} entries are acknowledged. The writer goes away without closing the "
        f"ledger, as if it had died too."
    )
    return StepResult(
        state.acknowledged - before,
        length - length_before,
        f"a process crash: nothing lost, {len(state.missed):,} entries meanwhile",
    )
