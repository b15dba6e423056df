"""Copies that the metadata does not name yet, on a bookie that loses its host: Java's ``recoverBookieData`` copies a
fragment first and changes the metadata then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from bkbox.base.ids import BookieId, EntryId, LedgerId
from bkbox.metadata import connect
from bkbox.wire.metadata.ledger import Fragment, LedgerState
from tests.crash.device.blockdevice import BlockDevice, missing
from tests.crash.device.host import HostedBookie, Promises, payload
from tests.harness import raw, raw3
from tests.harness.cluster import NOBODY, create_ledgers, ledger_of
from tests.harness.processes import bkbox
from tests.harness.waiting import wait_for

LEDGER, ENTRIES = 7, 74

pytestmark = pytest.mark.skipif(missing() != "", reason=f"no block device: {missing()}")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def copied_and_lost(
    stack: ExitStack, tmp_path: Path, twist: str = ""
) -> tuple[HostedBookie, HostedBookie, Promises]:
    """A ledger of another bookie, closed or (twist ``open``) with a writer in its next fragment, copied to a bookie
    under ``write``, whose power is cut then; or whose device fails while the host stays up.
    """
    device = stack.enter_context(BlockDevice(tmp_path / "device"))
    metadata = f"sqlite:{tmp_path}/cluster.db"
    source = HostedBookie(tmp_path, metadata, name="source")
    source.init_on("sync", [tmp_path / "source" / "disk"])
    target = HostedBookie(tmp_path, metadata, name="target")
    disks = [device.path / f"disk{number}" for number in range(2 if twist == "two disks" else 1)]
    target.init_on("write", disks, gc_confirm_s=0.2)
    for bookie in (source, target):
        stack.callback(bookie.ensure_gone)
        bookie.start_again()
    promises = Promises(target)
    assert Promises(source).add(LEDGER, range(ENTRIES)) == ENTRIES
    if twist == "open":
        fragments = named_fragments(source.bookie_id, NOBODY, is_open=True)
        created = replace(ledger_of(LEDGER, [source.bookie_id, NOBODY]), fragments=fragments)
    else:
        closed = ledger_of(
            LEDGER, [source.bookie_id, NOBODY], state=LedgerState.CLOSED, last_entry=ENTRIES - 1
        )
        size = sum(len(payload(LEDGER, each)) for each in range(ENTRIES))
        created = replace(closed, length=size)
    create_ledgers(metadata, [created])
    if twist == "v3":
        copy_by_version_3(promises, target)
    else:
        assert promises.add(LEDGER, range(ENTRIES), raw.RECOVERY) == ENTRIES
    if twist == "device":
        device.eio()
        target.kill()
    else:
        target.lose_host()
        device.cut(5)
    device.come_back()
    target.start_again()
    return source, target, promises


def copy_by_version_3(promises: Promises, target: HostedBookie) -> None:
    """As Java's client does it by default."""
    with raw3.RawClient3(target.port) as client:
        for entry in range(ENTRIES):
            data = payload(LEDGER, entry)
            assert client.add3(LEDGER, entry, data, recovery=True) == raw3.EOK
    promises.entries[LEDGER] = set(range(ENTRIES))


def named_fragments(source: str, second: str, *, is_open: bool) -> tuple[Fragment, ...]:
    first = Fragment(EntryId(0), (BookieId(source), BookieId(second)))
    last = Fragment(EntryId(ENTRIES), (BookieId(source), BookieId(NOBODY)))
    return (first, last) if is_open else (first,)


@pytest.mark.parametrize("twist", ["", "v3", "two disks", "device", "open"])
def test_a_copy_that_is_named_after_the_loss(stack: ExitStack, tmp_path: Path, twist: str) -> None:
    """Nothing is denied before or after; and once the metadata names it, repair brings it all back."""
    source, target, promises = copied_and_lost(stack, tmp_path, twist)
    promises.kept()
    assert target.classes() == {"host crash"}
    asyncio.run(name(target.metadata, source.bookie_id, target.bookie_id))
    promises.kept()
    target.kill()  # phase two looks at what is in limbo now, and not only when it comes to that by itself
    target.start_again()
    promises.kept()
    wait_for(lambda: not target.limbo, "the end of limbo", timeout=60)
    assert promises.kept(unknown_ok=False).served == ENTRIES
    if twist == "open":
        assert asyncio.run(state_of(target.metadata)) is LedgerState.OPEN, "its writer goes on"


async def state_of(uri: str) -> LedgerState:
    async with await connect(uri) as store:
        return (await store.read_ledger(LedgerId(LEDGER))).value.state


async def name(uri: str, source: str, target: str) -> None:
    async with await connect(uri) as store:
        found = await store.read_ledger(LedgerId(LEDGER))
        is_open = found.value.state is LedgerState.OPEN
        fragments = named_fragments(source, target, is_open=is_open)
        await store.write_ledger(replace(found.value, fragments=fragments), found.version)


def test_a_copy_that_is_never_named(stack: ExitStack, tmp_path: Path) -> None:
    """Limbo ends as its collection empties the trash; until then the copy may come back, and is in limbo."""
    _source, target, promises = copied_and_lost(stack, tmp_path)
    promises.kept()
    bkbox("gc", "run", "--all", "--empty-trash", "--config", str(target.config))
    wait_for(lambda: not target.limbo, "the end of limbo", timeout=30)
