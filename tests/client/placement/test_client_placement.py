"""Clients that choose bookies: what they know of them, and where their ledgers come to lie."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from bkbox.base.ids import BookieId
from bkbox.client import ClientOptions
from bkbox.client.connection.pool import DiskSpace
from bkbox.client.placement import free_space
from bkbox.client.placement.free_space import FreeSpace
from bkbox.errors import ConfigError, NotEnoughBookiesError
from bkbox.protocol.events import NoResponse, RequestStatus
from bkbox.protocol.placement import Mode, Verdict
from bkbox.protocol.quorum import QuorumSizes
from bkbox.wire import v3
from bkbox.wire.metadata.service_info import rpc_service_info
from tests.client.tinybookie import Cluster, cluster


def go(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 60))


def rack_map(folder: Path, racks: str) -> str:
    """A letter for each bookie from bookie-0 on, its rack."""
    file = folder / "racks.json"
    bookies = {f"bookie-{n}": {"rack": f"/{rack}"} for n, rack in enumerate(racks)}
    file.write_text(json.dumps({"all": bookies}))
    return str(file)


def questions(made: Cluster) -> list[int]:
    """How often each bookie was asked for its free space."""
    return [
        sum(isinstance(request, v3.BookieInfoRequest) for request in bookie.requests)
        for bookie in made.bookies.values()
    ]


# ---- ensembles ----------------------------------------------------------------------------------


def test_ensembles_span_racks_and_so_do_replacements(tmp_path: Path) -> None:
    racks = "aaabb"

    def racks_of(ensemble: tuple[BookieId, ...]) -> str:
        return "".join(sorted(racks[int(bookie[-1])] for bookie in ensemble))

    async def test() -> None:
        async with (
            cluster(tmp_path, 5) as made,
            made.client(rack_map=rack_map(tmp_path, racks)) as client,
        ):
            for _ in range(10):
                writer = await client.create_ledger(2)
                await writer.append(b"1")
                assert racks_of(writer.metadata.last_fragment.ensemble) == "ab"
                await writer.close()
            writer = await client.create_ledger(2)
            ensemble = writer.metadata.last_fragment.ensemble
            lost = next(bookie for bookie in ensemble if racks_of((bookie,)) == "b")
            await made.of(lost).kill()
            await writer.append(b"1")
            ensemble = writer.metadata.last_fragment.ensemble
            assert lost not in ensemble
            assert racks_of(ensemble) == "ab"
            await writer.close()

    go(test())


def test_too_few_bookies_are_named_with_those_that_were_dropped(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            info = rpc_service_info("127.0.0.1", 1)
            reader = await made.store.register(BookieId("full"), info, read_only=True)
            with pytest.raises(
                NotEnoughBookiesError,
                match=r"^4 bookies are needed, 3 are available: bookie-0, bookie-1, bookie-2; "
                r"dropped: full \(read-only\)$",
            ):
                await client.create_ledger(4)
            with pytest.raises(NotEnoughBookiesError, match=r"^1,000,000,000 bookies are needed"):
                await client.create_ledger(10**9)
            await reader.close()

    go(test())


def test_one_of_two_sources_of_racks(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give one of them"):
        ClientOptions(topology_script="a", rack_map="b")

    async def test(**options: str) -> None:
        async with cluster(tmp_path, 1) as made, made.client(**options):
            pass

    with pytest.raises(ConfigError, match="topology script /nowhere: no such file"):
        go(test(topology_script="/nowhere"))
    with pytest.raises(ConfigError, match=r"rack map /nowhere: .*No such file"):
        go(test(rack_map="/nowhere"))
    (tmp_path / "wrong").write_text("{")
    with pytest.raises(ConfigError, match=r"rack map .*/wrong: no JSON"):
        go(test(rack_map=str(tmp_path / "wrong")))


# ---- explanation --------------------------------------------------------------------------------


def test_explain_knows_every_bookie(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path, 4) as made, made.client() as client:
            at_port_1 = rpc_service_info("127.0.0.1", 1)
            ghost = await made.store.register(BookieId("ghost"), at_port_1, read_only=False)
            full = await made.store.register(BookieId("full"), at_port_1, read_only=True)
            await made.store.write_cookie(BookieId("away.example.com:3181"), b"5\n", None)
            found = await client.placer.explain(QuorumSizes(3, 3, 2), [BookieId("bookie-3")])
            seen = {each.candidate.bookie: each for each in found.decisions}
            assert {name: each.verdict for name, each in seen.items()} == {
                **dict.fromkeys(("bookie-0", "bookie-1", "bookie-2"), Verdict.CHOSEN),
                **dict.fromkeys(("bookie-3", "full", "away.example.com:3181"), Verdict.DROPPED),
                "ghost": Verdict.PASSED_OVER,
            }
            assert seen[BookieId("ghost")].reason == "not reached a moment ago"
            assert seen[BookieId("full")].reason == "read-only"
            away = seen[BookieId("away.example.com:3181")].candidate
            assert (away.mode, away.host, away.free_bytes) == (Mode.DOWN, "away.example.com", None)
            assert seen[BookieId("bookie-3")].candidate.free_bytes == 400
            await ghost.close()
            await full.close()

    go(test())


# ---- free space ---------------------------------------------------------------------------------


def test_bookies_are_asked_only_where_there_is_a_choice_and_seldom(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path, 3) as made, made.client() as client:
            await (await client.create_ledger(3)).close()
            assert questions(made) == [0, 0, 0]
            for _ in range(3):
                await (await client.create_ledger(2)).close()
            assert questions(made) == [1, 1, 1]

    go(test())


def test_a_creation_does_not_wait_for_a_bookie_that_does_not_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(free_space, "RESPONSE_TIMEOUT_S", 0.1)

    async def test() -> None:
        async with (
            cluster(tmp_path, 3) as made,
            made.client(read_timeout_s=600, connect_timeout_s=600) as client,
        ):
            made.of("bookie-0").hung = made.of("bookie-1").deaf = True
            await client.create_ledger(2)
            sizes = QuorumSizes(2, 2, 1)
            free = [
                each.candidate.free_bytes for each in (await client.placer.explain(sizes)).decisions
            ]
            assert free == [None, None, 400]

    with pytest.warns(ResourceWarning, match="was not closed"):
        go(test())


def test_free_space_is_what_was_said_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_space, "ASK_EVERY_S", 0.0)
    said: list[DiskSpace | RequestStatus] = [
        DiskSpace(10, 5),
        DiskSpace(10, 4),
        NoResponse.NOT_REACHED,
        DiskSpace(10, 3),
    ]

    async def ask(_: BookieId) -> DiskSpace | RequestStatus:
        return said.pop(0)

    async def test() -> None:
        space = FreeSpace(ask)
        bookie = BookieId("b")
        assert space.known(bookie) is None
        for free in (5, 4, None, 3):
            await space.refresh([bookie])
            assert space.known(bookie) == free

    go(test())


def test_two_creations_at_once_ask_once() -> None:
    asked: list[str] = []

    async def ask(bookie: BookieId) -> DiskSpace | RequestStatus:
        asked.append(bookie)
        await asyncio.sleep(0.01)
        return DiskSpace(1, 1)

    async def test() -> None:
        space = FreeSpace(ask)
        bookies = [BookieId(name) for name in "abc"]
        await asyncio.gather(space.refresh(bookies[:2]), space.refresh(bookies))
        assert sorted(asked) == ["a", "b", "c"]

    go(test())
