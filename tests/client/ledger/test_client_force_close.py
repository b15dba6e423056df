"""Asking every bookie what it has of a ledger, and ending a ledger that recovery cannot close."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bkbox.base.ids import EntryId, LedgerId
from bkbox.client import Client
from bkbox.client.ledger.force_close import ForceClose
from bkbox.errors import NothingToEndError, RecoveryAbortedError
from bkbox.metadata.versioned import Versioned
from bkbox.protocol.diagnosis import RecoveryOutlook
from bkbox.protocol.force_close_plan import ending
from bkbox.wire.codes import Code
from bkbox.wire.metadata.ledger import LedgerMetadata, LedgerState
from bkbox.wire.metadata.loss import ENDED, losses_of
from tests.client.tinybookie import Cluster, TinyBookie, cluster

pytestmark = pytest.mark.usefixtures("protocol")


def go(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 120))


async def written(made: Cluster, client: Client, entries: int) -> LedgerId:
    """An open ledger over three bookies without a writer: E = WQ = 3, AQ = 2."""
    writer = await client.create_ledger()
    for entry in range(entries):  # so that each says that the one before it is acknowledged
        await writer.append(b"%d" % entry)
    await made.every_copy_of(writer.metadata, entries)
    await writer.abort()
    return writer.ledger_id


def forget(bookie: TinyBookie, ledger: int, *entries: int) -> None:
    """It comes back from the loss of these entries."""
    for entry in entries:
        bookie.ledgers[ledger].entries.pop(entry, None)
    bookie.limbo = bookie.ledgers[ledger].fenced = True


async def payloads(client: Client, ledger: int) -> list[bytes]:
    reader = await client.open_ledger(ledger, password=None)
    return [entry.payload async for entry in reader.read()]


def test_a_healthy_ledger(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            ledger = await written(made, client, 5)
            found = (await client.inspect_ledger(ledger)).diagnosis
            assert (found.prospect, found.lac, found.end) == (RecoveryOutlook.CLOSES, 3, 4)
            assert not any(bookie.ledgers[ledger].fenced for bookie in made.bookies.values())
            assert (await client.metadata(ledger)).state is LedgerState.OPEN
            assert (await client.recover(ledger)).last_entry == 4
            assert (
                await client.inspect_ledger(ledger)
            ).diagnosis.prospect is RecoveryOutlook.NOTHING

    go(test())


@pytest.mark.parametrize("lists", [True, False])
def test_two_of_three_in_limbo_keep_a_ledger_open_and_are_named(
    tmp_path: Path, lists: bool
) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            ledger = await written(made, client, 5)
            for bookie in made.bookies.values():
                bookie.lists = lists
            for name in ("bookie-0", "bookie-1"):
                forget(made.of(name), ledger, *range(5))
            found = (await client.inspect_ledger(ledger)).diagnosis
            assert found.prospect is RecoveryOutlook.NO_FENCE
            assert set(found.limbo) == {"bookie-0", "bookie-1"}
            assert "bookie-0 is in limbo" in found.reason
            with pytest.raises(RecoveryAbortedError):
                await client.recover(ledger)

    go(test())


@pytest.mark.parametrize("what", ["dead", "hung", "rotten", "EIO"])
def test_who_does_not_answer_is_unknown_and_never_without_the_entry(
    tmp_path: Path, what: str
) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client(read_timeout_s=0.5) as client:
            ledger = await written(made, client, 3)
            for name in ("bookie-0", "bookie-1"):
                match what:
                    case "dead":
                        await made.of(name).kill()
                    case "hung":
                        made.of(name).hung = True
                    case "rotten":
                        made.of(name).wrong_digest = True
                        made.of(name).ledgers[ledger].entries.pop(2)
                    case "EIO":
                        made.of(name).refusal = Code.EIO
            survey = await client.inspect_ledger(ledger)
            found = survey.diagnosis
            assert found.stuck
            assert {bookie for bookie, _why in found.silent} >= {"bookie-0", "bookie-1"}
            assert survey.reports[made.of("bookie-2").id].describe_entry(2) == "has it"
            words = {"dead": "cannot be reached", "hung": "did not answer in time"}
            words |= {"rotten": "digest is wrong", "EIO": "answered EIO"}
            assert words[what] in found.reason
            for name in ("bookie-0", "bookie-1"):
                made.of(name).release()

    go(test())


def test_what_a_rotten_copy_hides_is_found_by_reading(tmp_path: Path) -> None:
    """A list names the entry; only reading it shows that this copy is worth nothing."""

    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            ledger = await written(made, client, 3)
            entries = made.of("bookie-0").ledgers[ledger].entries
            entries[2] = entries[2][:-1] + bytes([entries[2][-1] ^ 1])
            survey = await client.inspect_ledger(ledger)
            assert (
                survey.reports[made.of("bookie-0").id].describe_entry(2)
                == "has a copy whose digest is wrong"
            )
            assert survey.diagnosis.end == 2

    go(test())


# ---- ending ---------------------------------------------------------------------------------------


def test_a_ledger_is_ended_at_the_last_entry_found(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            ledger = await written(made, client, 6)
            for name in ("bookie-0", "bookie-1"):
                forget(made.of(name), ledger, *range(6))
            forget(made.of("bookie-2"), ledger, 4, 5)
            made.of("bookie-2").limbo = False
            ender = await client.force_close(ledger, plug=False)
            plan, _ = await ender.plan()
            assert (plan.end, plan.nothing_to_do) == (3, "")
            assert (await client.metadata(ledger)).state is LedgerState.OPEN, (
                "planning changes nothing"
            )
            done = await ender.end(plan, at_ms=1234)
            assert (done.metadata.state, done.metadata.last_entry) == (LedgerState.CLOSED, 3)
            assert done.metadata.length == 4
            assert await client.metadata(ledger) == done.metadata
            assert all(bookie.ledgers[ledger].fenced for bookie in made.bookies.values())
            assert await payloads(client, ledger) == [b"0", b"1", b"2", b"3"]
            record = json.loads(dict(done.metadata.custom)[ENDED])
            assert (record["at_ms"], record["end"]) == (1234, 3)
            # What was written back: LAC 2 was known, so entry 3 is on all bookies that take it.
            assert all(3 in bookie.ledgers[ledger].entries for bookie in made.bookies.values())

    go(test())


@pytest.mark.parametrize("plug", [False, True])
def test_a_hole_ends_it_or_is_plugged(tmp_path: Path, plug: bool) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            ledger = await written(made, client, 8)
            for name in ("bookie-0", "bookie-1"):
                forget(made.of(name), ledger, *range(8))
            forget(made.of("bookie-2"), ledger, 3, 5, 6)
            # Without entry 6 and what came after it the highest LAC that anything proves is 6, of entry 7.
            ender = await client.force_close(ledger, plug=plug)
            plan, _ = await ender.plan()
            assert [*plan.acknowledged] == [range(3, 4), range(5, 7)]
            assert plan.end == 7
            assert [*plan.holes] == [range(3, 4), range(5, 7)]
            done = await ender.end(plan, at_ms=0)
            assert (done.metadata.last_entry, done.metadata.length) == (7, 8)
            if plug:
                expected = [b"0", b"1", b"2", b"", b"4", b"", b"", b"7"]
                assert await payloads(client, ledger) == expected
                reader = await client.open_ledger(ledger)
                assert (await reader.read_entry(5)).length == 5, "that of the entry before"
                assert json.loads(dict(done.metadata.custom)[ENDED])["plugged"] == "3, 5-6"
            else:
                reader = await client.open_ledger(ledger)
                assert (await reader.read_entry(4)).payload == b"4"
                with pytest.raises(Exception, match="cannot be read"):
                    await reader.read_entry(5)

    go(test())


def test_holes_of_a_closed_ledger_are_plugged_and_nothing_else_is_touched(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            async with await client.create_ledger() as writer:
                await writer.append_many([b"%d" % entry for entry in range(5)])
                await made.every_copy_of(writer.metadata, 5)
            ledger = writer.ledger_id
            before = {name: dict(b.ledgers[ledger].entries) for name, b in made.bookies.items()}
            for bookie in made.bookies.values():
                forget(bookie, ledger, 2)
                bookie.lists = False
            with pytest.raises(NothingToEndError, match="--plug"):
                ender = await client.force_close(ledger, plug=False)
                await ender.end((await ender.plan())[0], at_ms=0)
            ender = await client.force_close(ledger, plug=True)
            plan, _ = await ender.plan()
            assert [*plan.holes] == [range(2, 3)]
            done = await ender.end(plan, at_ms=0)
            assert (done.metadata.last_entry, done.metadata.length) == (4, 5)
            assert await payloads(client, ledger) == [b"0", b"1", b"", b"3", b"4"]
            for name, bookie in made.bookies.items():
                others = {
                    entry: data
                    for entry, data in bookie.ledgers[ledger].entries.items()
                    if entry != 2
                }
                assert others == {entry: data for entry, data in before[name].items() if entry != 2}
            with pytest.raises(NothingToEndError, match="every entry is found"):
                await ender.end((await ender.plan())[0], at_ms=0)

    go(test())


def test_entries_that_a_bookie_does_not_list_are_not_plugged(tmp_path: Path) -> None:
    """An entry is a hole only where everybody was asked for it."""

    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            async with await client.create_ledger() as writer:
                await writer.append_many([b"%d" % entry for entry in range(2500)])
                await made.every_copy_of(writer.metadata, 2500)
            for bookie in made.bookies.values():
                bookie.lists = False
            survey = await client.inspect_ledger(writer.ledger_id)
            assert ending(survey.metadata, survey.reports, plug=True).holes, (
                "reads at both ends only"
            )
            ender = await client.force_close(writer.ledger_id, plug=True)
            plan, _ = await ender.plan()
            assert "every entry is found" in plan.nothing_to_do

    go(test())


def test_what_can_be_recovered_is_not_ended(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            ledger = await written(made, client, 3)
            ender = await client.force_close(ledger, plug=False)
            plan, _ = await ender.plan()
            with pytest.raises(NothingToEndError, match="ledger recover"):
                await ender.end(plan, at_ms=0)
            assert (await client.metadata(ledger)).state is LedgerState.OPEN

    go(test())


def test_what_has_come_back_meanwhile_is_recovered_without_loss(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            ledger = await written(made, client, 4)
            await made.of("bookie-0").kill()
            await made.of("bookie-1").kill()
            made.of("bookie-2").ledgers[ledger].entries.pop(3)
            ender = await client.force_close(ledger, plug=False)
            plan, _ = await ender.plan()
            assert plan.end == 2
            await made.of("bookie-0").start()
            await made.of("bookie-1").start()
            await asyncio.sleep(0.2)  # the pause before a bookie is tried again
            done = await ender.end(plan, at_ms=0)
            assert (done.metadata.last_entry, done.metadata.custom) == (3, ())

    go(test())


def test_more_loss_than_was_agreed_to_ends_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            ledger = await written(made, client, 4)
            for name in ("bookie-0", "bookie-1"):
                forget(made.of(name), ledger, *range(4))
            ender = await client.force_close(ledger, plug=False)
            plan, _ = await ender.plan()
            assert plan.end == 3
            forget(made.of("bookie-2"), ledger, 3)
            with pytest.raises(RecoveryAbortedError, match="more would be lost"):
                await ender.end(plan, at_ms=0)
            assert (await client.metadata(ledger)).state is LedgerState.IN_RECOVERY
            assert (await client.metadata(ledger)).last_entry == EntryId(-1)

    go(test())


def test_what_is_plugged_is_recorded_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A no-op entry looks like one that was found: a second try could not tell any more what was lost."""

    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            async with await client.create_ledger() as writer:
                await writer.append_many([b"%d" % entry for entry in range(5)])
                await made.every_copy_of(writer.metadata, 5)
            for bookie in made.bookies.values():
                forget(bookie, writer.ledger_id, 2)
            ender = await client.force_close(writer.ledger_id, plug=True)
            plan, _ = await ender.plan()
            write = ForceClose._write

            async def interrupted(*given: Any) -> tuple[int, int]:
                await write(*given)
                raise asyncio.CancelledError

            with monkeypatch.context() as patch, pytest.raises(asyncio.CancelledError):
                patch.setattr(ForceClose, "_write", interrupted)
                await ender.end(plan, at_ms=1)
            (record,) = losses_of(await client.metadata(writer.ledger_id))
            assert (record.lost, record.plugged, record.unknown_after) == ("2", "2", None)
            with pytest.raises(NothingToEndError, match="every entry is found"):
                await ender.end((await ender.plan())[0], at_ms=2)

    go(test())


def test_a_change_of_the_metadata_meanwhile_leaves_no_hole_plugged_without_a_record(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            async with await client.create_ledger() as writer:
                await writer.append_many([b"%d" % entry for entry in range(5)])
                await made.every_copy_of(writer.metadata, 5)
            for bookie in made.bookies.values():
                forget(bookie, writer.ledger_id, 2)
            ender = await client.force_close(writer.ledger_id, plug=True)
            plan, _ = await ender.plan()
            read = ender._read

            async def outdated() -> Versioned[LedgerMetadata]:
                found = await read()
                changed = replace(found.value, custom=(("another", b"worker"),))
                await client.store.write_ledger(changed, found.version)
                return found

            ender._read = outdated
            with pytest.raises(RecoveryAbortedError, match="its metadata changed"):
                await ender.end(plan, at_ms=1)
            assert not any(2 in b.ledgers[writer.ledger_id].entries for b in made.bookies.values())

    go(test())
