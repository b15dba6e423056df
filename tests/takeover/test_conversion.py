"""Takeover and handback of a small bookie, killed before each of their steps."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from bkbox.base.values import replaced
from bkbox.config.java_properties import parse
from bkbox.errors import (
    BookieRunningError,
    CookieMismatchError,
    DamagedError,
    OperatorError,
)
from bkbox.metadata import connect
from bkbox.storage.disk import dirty_marker
from bkbox.storage.disk.conversion import Direction
from bkbox.supervisor.boot.cookie_repair import inspect
from bkbox.takeover.java_bookie import ASIDE, CURRENT, Storage, java_bookie
from bkbox.takeover.java_ledger import JavaLedger
from bkbox.takeover.plan import make_plan, read_cluster
from tests.takeover.javadisks import KEY, Disks, Entries, KilledError, Killer, States, entry, lac
from tests.takeover.killed import killed

STATES: States = {
    1: JavaLedger(KEY),
    2: JavaLedger(KEY[::-1], fenced=True, explicit_lac=lac(2, 7)),
    3: JavaLedger(),
    4: JavaLedger(KEY, fenced=True),
    9: JavaLedger(KEY),
}
STORAGES = [
    pytest.param(Storage.DB, 1, id="db"),
    pytest.param(Storage.DB, 2, id="db-two-disks"),
    pytest.param(Storage.SORTED, 1, id="sorted"),
    pytest.param(Storage.INTERLEAVED, 2, id="interleaved-two-disks"),
]


def part(number: int) -> Entries:
    """The entries of one log file: two of each ledger; those of ledger 7 are not in the index."""
    ids = [(ledger, 2 * number + each) for ledger in (1, 2, 3, 7, 9) for each in (0, 1)]
    return {each: entry(*each) for each in ids}


async def java(root: Path, storage: Storage, disks: int = 1) -> tuple[Disks, Entries, States]:
    """A Java bookie, and what of it is to be taken over."""
    if storage is Storage.DB:
        pytest.importorskip("rocksdict")
    made = Disks(root, storage, disks)
    parts = [part(number) for number in range(5)]
    late = {(1, 10): entry(1, 10), (2, 9): entry(2, 9), (9, 10): entry(9, 10)}
    await made.make(parts, STATES, late)
    entries = {key: body for each in (*parts, late) for key, body in each.items() if key[0] < 7}
    return made, entries, {ledger: state for ledger, state in STATES.items() if ledger < 7}


def check_refused(disks: Disks) -> None:
    """Neither bookie starts where a conversion has begun; where it has not, nothing was changed."""
    for directory in disks.java.directories:
        if (directory / ASIDE).exists():
            assert not (directory / CURRENT).is_dir()


async def check_no_start(disks: Disks, command: str) -> None:
    if not any((each / "CONVERSION").exists() for each in disks.config.disks):
        return
    report = await inspect(disks.config)
    assert not report.ok
    assert f"bkbox {command}" in report.advice
    assert "run that command again" in report.advice


@pytest.mark.parametrize(("storage", "disks"), STORAGES)
def test_there_and_back_killed_at_every_step(tmp_path: Path, storage: Storage, disks: int) -> None:
    async def go() -> None:
        (tmp_path / "whole").mkdir()
        whole, entries, states = await java(tmp_path / "whole", storage, disks)
        there, back = Killer(), Killer()
        await whole.takeover(there)
        assert whole.of_bkbox() == (entries, states)
        assert not any((each / ASIDE).exists() for each in whole.java.directories)
        assert (await inspect(whole.config)).ok
        await whole.handback(back)
        assert whole.of_java() == (entries, states)
        assert not any((each / "DISK").exists() for each in whole.config.disks)

        (tmp_path / "killed").mkdir()
        killed, entries, states = await java(tmp_path / "killed", storage, disks)
        for command, convert, found, steps in (
            ("takeover", killed.takeover, killed.of_bkbox, len(there.steps)),
            ("handback", killed.handback, killed.of_java, len(back.steps)),
        ):
            for at in range(steps + 1):  # each run may get one step further than the one before
                try:
                    await convert(Killer(at))
                except KilledError:
                    check_refused(killed)
                    await check_no_start(killed, command)
                else:
                    break
            assert found() == (entries, states)

    asyncio.run(go())


@pytest.mark.parametrize("storage", [Storage.DB, Storage.SORTED])
def test_one_kill_before_each_step(tmp_path: Path, storage: Storage) -> None:
    async def go() -> None:
        number = 0
        for direction in ("takeover", "handback"):
            at = 0
            while True:
                root = tmp_path / f"run{number}"
                root.mkdir()
                number += 1
                disks, entries, states = await java(root, storage)
                if direction == "handback":
                    await disks.takeover(Killer())
                convert = disks.takeover if direction == "takeover" else disks.handback
                try:
                    await convert(Killer(at))
                except KilledError:
                    check_refused(disks)
                    await check_no_start(disks, direction)
                    await convert(Killer())
                    found = disks.of_bkbox() if direction == "takeover" else disks.of_java()
                    assert found == (entries, states), (direction, at)
                    at += 1
                    continue
                break

    asyncio.run(go())


def test_doubtful_data_is_fenced_and_repaired(tmp_path: Path) -> None:
    """Java's bookie was killed and had its entries in no journal: the first start takes it for a lost host."""

    async def go() -> None:
        disks, entries, _ = await java(tmp_path, Storage.SORTED)
        (Path(disks.java.ledger_dirs[0]) / CURRENT / "DIRTY").touch()
        disks.conf.write_text(disks.conf.read_text() + "journalWriteData=false\n")
        disks.java = java_bookie(parse(disks.conf.read_text(), "conf"), "conf")
        await disks.takeover(Killer())
        marker = dirty_marker.read_marker(disks.files, disks.config.disks[0])
        assert marker is not None
        assert "not stopped in order" in marker.failures[0]
        assert disks.of_bkbox()[0] == entries

    asyncio.run(go())


def test_a_damaged_log_file_is_noticed(tmp_path: Path) -> None:
    async def go() -> None:
        disks, _, _ = await java(tmp_path, Storage.SORTED)
        path = Path(disks.java.ledger_dirs[0]) / CURRENT / "2.log"
        data = bytearray(path.read_bytes())
        data[1024:1028] = (0).to_bytes(4)  # the length of the first entry
        path.write_bytes(data)
        await disks.takeover(Killer())
        marker = dirty_marker.read_marker(disks.files, disks.config.disks[0])
        assert marker is not None
        assert "2.log: " in marker.failures[0]

    asyncio.run(go())


def test_without_the_index_every_ledger_is_fenced(tmp_path: Path) -> None:
    async def go() -> None:
        disks, entries, states = await java(tmp_path, Storage.DB)
        await disks.takeover(Killer(), fence_all=True)
        found, known = disks.of_bkbox()
        assert found == {key: body for key, body in entries.items() if key[0] != 4}
        assert known == {each: JavaLedger(fenced=True) for each in states if each != 4}

    asyncio.run(go())


def test_what_is_refused(tmp_path: Path) -> None:
    """Each refusal changes nothing: the takeover succeeds afterwards."""

    async def go() -> None:
        disks, entries, states = await java(tmp_path, Storage.SORTED)
        data = Path(disks.java.ledger_dirs[0]) / CURRENT
        version = (data / "VERSION").read_bytes()

        async def refused(error: type[Exception], text: str) -> None:
            before = sorted(map(str, data.rglob("*")))
            with pytest.raises(error, match=text):
                make_plan(disks.java, disks.config, disks.files, disks.cluster, fence_all=False)
            assert sorted(map(str, data.rglob("*"))) == before

        (data / "VERSION").unlink()
        await refused(OperatorError, "VERSION is not there")
        (data / "VERSION").write_bytes(version.replace(b"127.0.0.1", b"127.0.0.2"))
        await refused(CookieMismatchError, "does not match|bookieHost")
        (data / "VERSION").write_bytes(b"6\n" + version.split(b"\n", 1)[1].replace(b"data0", b"x"))
        await refused(CookieMismatchError, "ledgerDirs")
        (data / "VERSION").write_bytes(version)
        log = (data / "3.log").read_bytes()
        (data / "3.log").write_bytes(log[:4] + (2).to_bytes(4) + log[8:])
        await refused(DamagedError, "not an entry log of a known version")
        (data / "3.log").write_bytes(log)
        journal = Path(disks.java.journal_dirs[0]) / CURRENT / "11.txn"
        journal.rename(tmp_path / "11.txn")
        await refused(DamagedError, "11.txn is missing")
        (tmp_path / "11.txn").rename(journal)
        ours, disks.java = disks.java, replaced(disks.java, ledger_dirs=("/elsewhere",))
        await refused(OperatorError, "have to be the same")
        disks.java = ours
        async with await connect(disks.config.metadata) as store:
            with (
                socket.create_server(("127.0.0.1", disks.port)),
                pytest.raises(BookieRunningError, match="listens on port"),
            ):
                await read_cluster(store, disks.config.bookie_id, disks.port)
        await disks.takeover(Killer())
        assert disks.of_bkbox() == (entries, states)

    asyncio.run(go())


def test_handback_is_refused_to_an_unclean_bookie(tmp_path: Path) -> None:
    async def go() -> None:
        disks, _, _ = await java(tmp_path, Storage.SORTED)
        await disks.takeover(Killer())
        dirty_marker.record_failure(disks.files, disks.config.disks[0], "a failed sync")
        with pytest.raises(OperatorError, match="not stopped cleanly"):
            await disks.handback(Killer())
        assert not (disks.config.disks[0] / "CONVERSION").exists()

    asyncio.run(go())


def test_real_kills(tmp_path: Path) -> None:
    """The process is sent SIGKILL, and the command goes on in another one."""
    disks, entries, states = asyncio.run(java(tmp_path, Storage.SORTED))
    toml = Path(disks.config.path)
    for direction, found in (
        (Direction.TAKEOVER, disks.of_bkbox),
        (Direction.HANDBACK, disks.of_java),
    ):
        for at in (1, 3, 5, 7):
            assert killed(disks.conf, toml, direction, at)
        assert not killed(disks.conf, toml, direction, 1000)
        assert found() == (entries, states)
