"""Starts after every kind of end, on real processes: what is classified how, what is fenced, what is in limbo, and what
refuses to start.
"""

from __future__ import annotations

import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from bkbox.api.admin.client import fetch_status
from bkbox.errors import BookieNotRunningError, BookieUnresponsiveError
from bkbox.storage.disk import dirty_marker
from bkbox.storage.files import RealFiles
from bkbox.wire.metadata.ledger import LedgerState
from tests.harness import cluster
from tests.harness.cluster import NOBODY, create_ledgers, empty, ledger_of, pretend_another_boot
from tests.harness.fixtures import MakeBookie
from tests.harness.processes import BookieProcess, bkbox
from tests.harness.raw import (
    EFENCED,
    EIO,
    ENOENTRY,
    ENOLEDGER,
    EOK,
    HIGH_PRIORITY,
    RECOVERY,
    RawClient,
    batch_frame,
    payload_of,
)
from tests.harness.waiting import wait_for

OURS_OPEN, OURS_CLOSED, OURS_BEFORE, THEIRS_CLOSED, THEIRS_RECOVERING, THEIRS_OPEN = range(1, 7)
OURS = (OURS_OPEN, OURS_CLOSED, OURS_BEFORE)
"""OURS_BEFORE names the bookie in its first ensemble, and another in its place in the last."""

LIMBO = (*OURS, THEIRS_RECOVERING)
"""A recovery that is under way may have written entries to this bookie and not have said so yet."""

REPAIR = RECOVERY | HIGH_PRIORITY


def fill(bookie: BookieProcess) -> None:
    """Six ledgers in metadata, entries 0..4 of the three that name this bookie, an acked fence on one more."""
    us, other = bookie.bookie_id, "127.0.0.1:2"
    create_ledgers(
        bookie.metadata,
        [
            ledger_of(OURS_OPEN, [us, NOBODY]),
            ledger_of(OURS_CLOSED, [us, NOBODY], state=LedgerState.CLOSED, last_entry=9),
            ledger_of(OURS_BEFORE, [us, NOBODY], [other, NOBODY]),
            ledger_of(THEIRS_CLOSED, [other, NOBODY], state=LedgerState.CLOSED, last_entry=9),
            ledger_of(THEIRS_RECOVERING, [other, NOBODY], state=LedgerState.IN_RECOVERY),
            ledger_of(THEIRS_OPEN, [other, NOBODY]),
        ],
    )
    with RawClient(bookie.port) as client:
        for ledger in OURS:
            for entry in range(5):
                assert client.add(ledger, entry, b"%d/%d" % (ledger, entry)) == EOK


def restart(bookie: BookieProcess) -> dict[str, Any]:
    bookie.start()
    return bookie.status()


def classes(status: dict[str, Any]) -> list[str]:
    return [disk["crash_class"] for disk in status["disks"]]


def assert_all_there(client: RawClient) -> None:
    for ledger in OURS:
        for entry in range(5):
            answer = client.read(ledger, entry)
            assert (answer.code, payload_of(answer.body)) == (EOK, b"%d/%d" % (ledger, entry))


def assert_nothing_lost_and_nothing_marked(bookie: BookieProcess, next_entry: int) -> None:
    with RawClient(bookie.port) as client:
        assert_all_there(client)
        assert client.read(OURS_OPEN, 1000).code == ENOENTRY
        assert client.read(THEIRS_OPEN, 0).code == ENOLEDGER
        assert client.add(OURS_OPEN, next_entry, b"goes on") == EOK


def assert_limbo(client: RawClient, ledger: int, *, present: range) -> None:
    """Fenced; what is there is served; nothing is ever denied."""
    for entry in range(10):
        answer = client.read(ledger, entry)
        if entry in present:
            assert (answer.code, payload_of(answer.body)) == (EOK, b"%d/%d" % (ledger, entry))
        else:
            assert answer.code == EIO
    assert client.read(ledger, -1).code == (EOK if present else EIO)
    client.send(batch_frame(ledger, present.stop, 10))
    assert client.answer().code == EIO
    assert client.add(ledger, 100, b"late") == EFENCED
    assert client.fence(ledger, 5000).code == EIO
    assert client.add(ledger, 101, b"late") == EFENCED


def assert_marked(bookie: BookieProcess, *, present: range) -> None:
    """What phase one has to leave: every ledger that may have lost something."""
    with RawClient(bookie.port) as client:
        for ledger in OURS:
            assert_limbo(client, ledger, present=present)
        assert_limbo(client, THEIRS_RECOVERING, present=range(0))
        assert client.add(THEIRS_CLOSED, 0, b"late") == EFENCED
        assert client.read(THEIRS_CLOSED, 0).code == ENOENTRY
        assert client.read(THEIRS_OPEN, 0).code == ENOLEDGER


# ---- ends that lose nothing, and a host that does -----------------------------------------------------


@pytest.mark.parametrize(
    "ack_after", ["sync", "write", pytest.param("journal", marks=pytest.mark.slow)]
)
def test_each_kind_of_end(make_bookie: MakeBookie, ack_after: str) -> None:
    bookie = make_bookie(ack_after=ack_after, journal=ack_after == "journal").start()
    assert classes(bookie.status()) == ["clean", "clean"]
    fill(bookie)

    assert bookie.stop() == 0
    assert not any((disk / "DIRTY").exists() for disk in bookie.disks)
    assert classes(restart(bookie)) == ["clean", "clean"]
    assert_nothing_lost_and_nothing_marked(bookie, 5)

    bookie.kill()
    status = restart(bookie)
    assert classes(status) == ["process crash", "process crash"]
    assert status["limbo"]["ledgers"] == 0
    assert_nothing_lost_and_nothing_marked(bookie, 6)

    bookie.kill()
    pretend_another_boot(bookie.disks)
    status = restart(bookie)
    assert classes(status) == ["host crash", "host crash"]
    if ack_after != "write":
        assert status["limbo"]["ledgers"] == 0
        assert_nothing_lost_and_nothing_marked(bookie, 7)
        return
    assert status["limbo"]["ledgers"] <= len(OURS), "of those alone that were written to just now"
    with RawClient(bookie.port) as client:
        assert_all_there(client)
        codes = [client.read(ledger, 1000).code for ledger in OURS]
        assert codes.count(EIO) == status["limbo"]["ledgers"]
        for ledger, code in zip(OURS, codes, strict=True):
            assert client.read(ledger, -1).code == EOK
            if code == EIO:
                assert client.add(ledger, 5, b"late") == EFENCED


@pytest.mark.parametrize(
    "ack_after", ["write", *(pytest.param(m, marks=pytest.mark.slow) for m in ("sync", "journal"))]
)
def test_strict_takes_a_process_crash_for_one_of_the_host(
    make_bookie: MakeBookie, ack_after: str
) -> None:
    bookie = make_bookie(
        ack_after=ack_after, journal=ack_after == "journal", strict_unclean_shutdown="true"
    ).start()
    fill(bookie)
    bookie.kill()
    status = restart(bookie)
    assert classes(status) == ["host crash", "host crash"]
    assert status["limbo"]["ledgers"] <= (len(OURS) if ack_after == "write" else 0)
    with RawClient(bookie.port) as client:
        assert_all_there(client)
    assert bookie.stop() == 0
    assert classes(restart(bookie)) == ["clean", "clean"]


def test_a_crash_under_write_counts_though_the_configuration_says_sync_now(
    make_bookie: MakeBookie,
) -> None:
    bookie = make_bookie(ack_after="write").start()
    fill(bookie)
    bookie.kill()
    pretend_another_boot(bookie.disks)
    text = bookie.config.read_text()
    bookie.config.write_text(text.replace('ack_after = "write"', 'ack_after = "sync"'))
    status = restart(bookie)
    assert status["ack_after"] == "sync"
    assert classes(status) == ["host crash", "host crash"]
    assert status["limbo"]["ledgers"] <= len(OURS)
    with RawClient(bookie.port) as client:
        assert_all_there(client)


# ---- a lost disk -----------------------------------------------------------------------------------


def assert_refused(bookie: BookieProcess, *words: str, code: int = 4) -> str:
    """`bkbox run` ends with this code and says these words in lines that begin with `error:`."""
    done = bkbox("run", "--config", str(bookie.config), check=False)
    assert done.returncode == code, done.stderr
    assert "ready" not in done.stdout
    assert "Traceback" not in done.stderr
    errors = "\n".join(line for line in done.stderr.splitlines() if line.startswith("error:"))
    for word in words:
        assert word in errors, done.stderr
    return errors


def repair(bookie: BookieProcess, **kwargs: Any) -> Any:
    return bkbox("cookie", "repair", "--config", str(bookie.config), "--yes", **kwargs)


def test_the_life_of_a_lost_disk(make_bookie: MakeBookie) -> None:
    """Refused, repaired by command, phase one, limbo through every further end."""
    bookie = make_bookie(disks=1, ack_after="sync").start()
    fill(bookie)
    with RawClient(bookie.port) as client:
        assert client.fence(THEIRS_CLOSED).code == ENOENTRY
    assert bookie.stop() == 0
    empty(bookie.disks[0])

    command = f"bkbox cookie repair --config {bookie.config}"
    assert_refused(bookie, "ledgerDirs", str(bookie.disks[0]), command)
    assert list(bookie.disks[0].iterdir()) in ([], [bookie.disks[0] / "LOCK"])
    verify = bkbox("cookie", "verify", "--config", str(bookie.config), check=False)
    assert verify.returncode == 4
    assert command in verify.stdout + verify.stderr

    repair(bookie)
    status = restart(bookie)
    assert classes(status) == ["disk replaced"]
    assert status["limbo"]["ledgers"] == len(LIMBO)
    assert_marked(bookie, present=range(0))

    # Repair writes what it found elsewhere; limbo stays, for others may be missing still.
    with RawClient(bookie.port) as client:
        for ledger in OURS:
            for entry in range(3):
                assert client.add(ledger, entry, b"%d/%d" % (ledger, entry), REPAIR) == EOK
    assert_marked(bookie, present=range(3))

    bookie.kill()
    status = restart(bookie)
    assert classes(status) == ["process crash"]
    assert status["limbo"]["ledgers"] == len(LIMBO)
    assert_marked(bookie, present=range(3))

    assert bookie.stop() == 0
    status = restart(bookie)
    assert classes(status) == ["clean"]
    assert status["limbo"]["ledgers"] == len(LIMBO)
    assert_marked(bookie, present=range(3))

    bookie.kill()
    pretend_another_boot(bookie.disks)
    assert classes(restart(bookie)) == ["host crash"]
    assert_marked(bookie, present=range(3))


def test_a_folder_that_is_gone_is_a_lost_disk(make_bookie: MakeBookie) -> None:
    bookie = make_bookie().start()
    assert bookie.stop() == 0
    shutil.rmtree(bookie.disks[1])
    assert_refused(bookie, "ledgerDirs", str(bookie.disks[1]), "bkbox cookie repair")
    assert not bookie.disks[1].exists()
    repair(bookie)
    assert classes(restart(bookie)) == ["clean", "disk replaced"]


def test_one_lost_disk_leaves_the_ledgers_of_the_other_alone(make_bookie: MakeBookie) -> None:
    bookie = make_bookie().start()
    us = bookie.bookie_id
    create_ledgers(bookie.metadata, (ledger_of(ledger, [us, NOBODY]) for ledger in range(1, 11)))
    with RawClient(bookie.port) as client:
        for ledger in range(1, 11):
            assert client.add(ledger, 0, b"%d" % ledger) == EOK
    assert bookie.stop() == 0
    empty(bookie.disks[1])
    repair(bookie)
    assert restart(bookie)["limbo"]["ledgers"] == 5
    with RawClient(bookie.port) as client:
        codes = [client.read(ledger, 0).code for ledger in range(1, 11)]
        assert sorted(codes) == [EOK] * 5 + [EIO] * 5
        for ledger, code in enumerate(codes, start=1):
            assert client.add(ledger, 1, b"x") == (EOK if code == EOK else EFENCED)
            assert client.read(ledger, 1).code == code


def test_auto_fix_cookies_goes_the_same_way_by_itself(make_bookie: MakeBookie) -> None:
    bookie = make_bookie(disks=1, auto_fix_cookies="true").start()
    fill(bookie)
    assert bookie.stop() == 0
    empty(bookie.disks[0])
    status = restart(bookie)
    assert classes(status) == ["disk replaced"]
    assert_marked(bookie, present=range(0))
    wait_for(lambda: "auto_fix_cookies" in bookie.stderr, "the line")


def test_a_crash_in_the_middle_of_phase_one_begins_it_again(make_bookie: MakeBookie) -> None:
    bookie = make_bookie(disks=1).start()
    ledgers = range(1, 2001)
    create_ledgers(bookie.metadata, (ledger_of(n, [bookie.bookie_id, NOBODY]) for n in ledgers))
    assert bookie.stop() == 0
    empty(bookie.disks[0])
    repair(bookie)

    socket_path = bookie.disks[0] / "admin.sock"

    def in_phase_one() -> bool:
        try:
            return fetch_status(socket_path, 5.0).boot.phase == "phase one"
        except (BookieNotRunningError, BookieUnresponsiveError):
            return False

    for _ in range(3):
        bookie.start(wait=False)
        wait_for(in_phase_one, "phase one", pause=0.005)
        with pytest.raises(ConnectionRefusedError), RawClient(bookie.port):
            pass
        bookie.kill()
        assert not (bookie.disks[0] / "VERSION").exists()

    # The last kill may have come after phase one was done and noted, and before the stamp.
    noted = dirty_marker.read_marker(RealFiles(), bookie.disks[0])
    assert noted is not None
    status = restart(bookie)
    assert classes(status) == ["disk replaced" if noted.replaced else "process crash"]
    assert status["limbo"]["ledgers"] == len(ledgers)
    assert (bookie.disks[0] / "VERSION").exists()
    with RawClient(bookie.port) as client:
        assert {client.read(ledger, 0).code for ledger in ledgers} == {EIO}
        assert {client.add(ledger, 0, b"late") for ledger in ledgers} == {EFENCED}


def test_read_only_while_in_limbo(make_bookie: MakeBookie) -> None:
    bookie = make_bookie(disks=1, readonly_while_in_limbo="true").start()
    fill(bookie)
    assert cluster.bookies_of(bookie.metadata) == {bookie.bookie_id: False}
    bookie.stop()
    assert cluster.bookies_of(bookie.metadata) == {}
    empty(bookie.disks[0])
    repair(bookie)
    status = restart(bookie)
    assert cluster.bookies_of(bookie.metadata) == {bookie.bookie_id: True}
    assert not status["writable"]
    assert "ledgers in limbo" in status["read_only_reasons"]


# ---- disks that are not what the configuration says ---------------------------------------------------


def files_of(disk: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(disk)): path.read_bytes()
        for path in sorted(disk.rglob("*"))
        if path.is_file() and path.name != "LOCK"
    }


@pytest.mark.parametrize("auto_fix", ["false", "true"])
def test_another_bookie_s_disk_is_never_taken(make_bookie: MakeBookie, auto_fix: str) -> None:
    bookie = make_bookie("ours", auto_fix_cookies=auto_fix)
    other = make_bookie("other")
    shutil.rmtree(bookie.disks[0])
    shutil.copytree(other.disks[0], bookie.disks[0])
    before = files_of(bookie.disks[0])
    assert_refused(bookie, str(bookie.disks[0]), "bookieHost", other.bookie_id)
    assert repair(bookie, check=False).returncode != 0
    assert files_of(bookie.disks[0]) == before


@pytest.mark.parametrize("auto_fix", ["false", "true"])
def test_another_id_is_refused_and_the_former_one_starts_again(
    make_bookie: MakeBookie, auto_fix: str
) -> None:
    bookie = make_bookie(auto_fix_cookies=auto_fix)
    before = [files_of(disk) for disk in bookie.disks]
    config = bookie.config.read_text()
    bookie.config.write_text(f'{config}\nbookie_id = "somebody-else"\n')
    assert_refused(bookie, "somebody-else", "the id and the address that it always had")
    assert repair(bookie, check=False).returncode != 0
    assert [files_of(disk) for disk in bookie.disks] == before
    bookie.config.write_text(config)
    bookie.start()
    assert bookie.stop() == 0


@pytest.mark.parametrize("auto_fix", ["false", "true"])
def test_another_cluster_s_disk_is_never_taken(make_bookie: MakeBookie, auto_fix: str) -> None:
    bookie = make_bookie("ours", auto_fix_cookies=auto_fix)
    other = BookieProcess(
        bookie.root.parent, f"sqlite:{bookie.root.parent}/other.db", port=bookie.port
    )
    other.init()
    shutil.rmtree(bookie.disks[0])
    shutil.copytree(other.disks[0], bookie.disks[0])
    before = files_of(bookie.disks[0])
    assert_refused(bookie, str(bookie.disks[0]), "instanceId")
    assert repair(bookie, check=False).returncode != 0
    assert files_of(bookie.disks[0]) == before


def test_another_cluster_s_metadata_is_refused(make_bookie: MakeBookie) -> None:
    bookie = make_bookie("ours", auto_fix_cookies="true")
    make_bookie("elsewhere", "other.db")
    text = bookie.config.read_text()
    bookie.config.write_text(text.replace("metadata.db", "other.db"))
    before = files_of(bookie.disks[0])
    assert_refused(bookie, "cookie")
    assert repair(bookie, check=False).returncode != 0
    assert files_of(bookie.disks[0]) == before


def test_swapped_disks_serve_on(make_bookie: MakeBookie) -> None:
    """A ledger is where its records are: which path a disk is mounted at does not matter."""
    bookie = make_bookie().start()
    fill(bookie)
    assert bookie.stop() == 0
    first, second = bookie.disks
    first.rename(bookie.root / "aside")
    second.rename(first)
    (bookie.root / "aside").rename(second)
    assert classes(restart(bookie)) == ["clean", "clean"]
    assert_nothing_lost_and_nothing_marked(bookie, 5)


def test_one_disk_copied_twice_is_refused(make_bookie: MakeBookie) -> None:
    bookie = make_bookie()
    shutil.rmtree(bookie.disks[1])
    shutil.copytree(bookie.disks[0], bookie.disks[1])
    assert_refused(bookie, str(bookie.disks[0]), str(bookie.disks[1]), "copies")
    assert not (bookie.disks[0] / "DIRTY").exists()


def set_disks(bookie: BookieProcess, disks: list[Path]) -> None:
    lines = bookie.config.read_text().splitlines()
    (at,) = (n for n, line in enumerate(lines) if line.startswith("disks ="))
    lines[at] = "disks = [" + ", ".join(f'"{disk}"' for disk in disks) + "]"
    bookie.config.write_text("\n".join(lines) + "\n")


def test_a_disk_added_to_the_configuration(make_bookie: MakeBookie) -> None:
    bookie = make_bookie().start()
    fill(bookie)
    assert bookie.stop() == 0
    third = bookie.root / "disk3"
    set_disks(bookie, [*bookie.disks, third])
    assert_refused(bookie, "ledgerDirs", "bkbox cookie repair")
    done = repair(bookie)
    assert f"prepare {third} as a new disk" in done.stderr
    status = restart(bookie)
    assert classes(status) == ["clean"] * 3
    assert status["limbo"]["ledgers"] == 0
    assert_nothing_lost_and_nothing_marked(bookie, 5)
    with RawClient(bookie.port) as client:
        for ledger in range(
            999, 1_005
        ):  # by room, which is the same for all: these share a file system
            assert client.add(ledger, 0, b"new") == EOK
    assert [disk["ledgers"] for disk in bookie.status()["disks"]][2] > 0


def test_a_disk_taken_out_of_the_configuration_counts_as_lost(make_bookie: MakeBookie) -> None:
    bookie = make_bookie().start()
    fill(bookie)
    assert bookie.stop() == 0
    set_disks(bookie, bookie.disks[:1])
    assert_refused(bookie, "ledgerDirs", "bkbox cookie repair")
    done = repair(bookie)
    assert f"treat {bookie.disks[1]} as lost" in done.stderr
    status = restart(bookie)
    assert classes(status) == ["host crash"]
    assert status["limbo"]["ledgers"] == len(LIMBO)
    with RawClient(bookie.port) as client:
        for ledger in OURS:
            assert client.read(ledger, 0).code in (EOK, EIO)
            assert client.read(ledger, 7).code == EIO
            assert client.add(ledger, 5, b"late") == EFENCED


@pytest.mark.parametrize("auto_fix", ["true", pytest.param("false", marks=pytest.mark.slow)])
def test_a_disk_that_was_replaced_does_not_come_back(
    make_bookie: MakeBookie, auto_fix: str
) -> None:
    """It looks as good as ever and knows nothing of the fences and entries since."""
    bookie = make_bookie(disks=1, auto_fix_cookies=auto_fix).start()
    fill(bookie)
    assert bookie.stop() == 0
    aside = bookie.root / "aside"
    bookie.disks[0].rename(aside)
    bookie.disks[0].mkdir()
    repair(bookie)
    restart(bookie)
    with RawClient(bookie.port) as client:
        assert client.add(OURS_OPEN, 5, b"copied", REPAIR) == EOK
    assert bookie.stop() == 0
    shutil.rmtree(bookie.disks[0])
    aside.rename(bookie.disks[0])
    before = files_of(bookie.disks[0])
    assert_refused(bookie, str(bookie.disks[0]), "EPOCH is 0", "out of use")
    assert files_of(bookie.disks[0]) == before
    assert "as if its host had crashed" in repair(bookie).stderr
    assert classes(restart(bookie)) == ["host crash"]
    assert_marked(bookie, present=range(5))


def test_a_cookie_that_another_tool_has_written(make_bookie: MakeBookie) -> None:
    """As `bookkeeper shell cookie_update` does: the same bytes, a version that no disk knows."""
    bookie = make_bookie(disks=2).start()
    fill(bookie)
    assert bookie.stop() == 0
    cluster.rewrite_cookie(bookie.metadata, bookie.bookie_id)
    assert_refused(bookie, "EPOCH is 0", "another tool has written the cookie", "expected 1")
    repair(bookie)
    assert classes(restart(bookie)) == ["host crash", "host crash"]
    assert_marked(bookie, present=range(5))


def test_a_cookie_of_a_java_bookie_in_our_place(make_bookie: MakeBookie) -> None:
    """Refused by name; taking the id over counts everything that the Java bookie had as lost."""
    bookie = make_bookie(disks=1).start()
    fill(bookie)
    assert bookie.stop() == 0
    empty(bookie.disks[0])
    cluster.write_java_cookie(bookie.metadata, bookie.bookie_id)
    twin = BookieProcess(bookie.root, bookie.metadata, name="twin", port=bookie.port)
    with pytest.raises(AssertionError, match="already, with data in /var/bookkeeper/ledgers"):
        twin.init(disks=1)
    assert_refused(bookie, "journalDir is /var/bookkeeper/journal", "/var/bookkeeper/ledgers")
    assert "treat /var/bookkeeper/ledgers as lost" in repair(bookie).stderr
    assert classes(restart(bookie)) == ["disk replaced"]
    assert_marked(bookie, present=range(0))


def test_a_cookie_that_was_deleted_and_made_anew(make_bookie: MakeBookie) -> None:
    """Its version counts from 0 again, below what the disks know."""
    bookie = make_bookie(disks=2)
    empty(bookie.disks[1])
    repair(bookie)
    restart(bookie)
    assert bookie.stop() == 0
    cluster.recreate_cookie(bookie.metadata, bookie.bookie_id)
    restart(bookie)
    assert bookie.stop() == 0
    empty(bookie.disks[1])
    repair(bookie)
    assert classes(restart(bookie)) == ["clean", "disk replaced"]


def test_a_disk_that_was_taken_out_does_not_come_back(make_bookie: MakeBookie) -> None:
    bookie = make_bookie().start()
    fill(bookie)
    assert bookie.stop() == 0
    set_disks(bookie, bookie.disks[:1])
    repair(bookie)
    restart(bookie)
    assert bookie.stop() == 0
    set_disks(bookie, bookie.disks)
    assert_refused(bookie, str(bookie.disks[1]))
    assert repair(bookie, check=False).returncode != 0
    empty(bookie.disks[1])
    repair(bookie)
    restart(bookie)
    with RawClient(bookie.port) as client:
        for ledger in OURS:
            assert client.read(ledger, 7).code == EIO
            assert client.add(ledger, 5, b"late") == EFENCED


@pytest.mark.parametrize("damage", ["gone", "rubbish", "empty"])
def test_a_version_file_that_is_lost_or_damaged(make_bookie: MakeBookie, damage: str) -> None:
    bookie = make_bookie(disks=1).start()
    fill(bookie)
    assert bookie.stop() == 0
    version = bookie.disks[0] / "VERSION"
    if damage == "gone":
        version.unlink()
    else:
        version.write_bytes(b"\x00rubbish\nx" if damage == "rubbish" else b"")
    assert_refused(bookie, str(bookie.disks[0]), "VERSION", "bkbox cookie repair")
    repair(bookie)
    restart(bookie)
    with RawClient(bookie.port) as client:
        assert_all_there(client)


@pytest.mark.parametrize("auto_fix", ["false", "true"])
def test_a_bookie_without_a_cookie_in_metadata_does_not_start(
    make_bookie: MakeBookie, auto_fix: str
) -> None:
    bookie = make_bookie(auto_fix_cookies=auto_fix)
    cluster.delete_cookie(bookie.metadata, bookie.bookie_id)
    before = files_of(bookie.disks[0])
    assert_refused(bookie, "metadata", "cookie")
    done = repair(bookie, check=False)
    assert done.returncode != 0
    assert "init" in done.stderr
    assert files_of(bookie.disks[0]) == before


# ---- init and repair know their cases ------------------------------------------------------------------


def init_again(bookie: BookieProcess, config: Path, *disks: Path) -> Any:
    arguments = ["init", "--config", str(config), "--metadata", bookie.metadata]
    arguments += ["--listen", f"127.0.0.1:{bookie.port}"]
    for disk in disks:
        arguments += ["--disk", str(disk)]
    return bkbox(*arguments, check=False)


def test_init_refuses_a_known_bookie(make_bookie: MakeBookie) -> None:
    bookie = make_bookie()
    before = [files_of(disk) for disk in bookie.disks]
    done = init_again(bookie, bookie.root / "again.toml", *bookie.disks)
    assert done.returncode == 1
    assert "bkbox cookie repair" in done.stderr
    assert [files_of(disk) for disk in bookie.disks] == before
    assert not (bookie.root / "again.toml").exists()
    done = init_again(bookie, bookie.root / "again.toml", bookie.root / "fresh")
    assert done.returncode == 1


def test_init_refuses_folders_with_something_in_them(tmp_path: Path) -> None:
    bookie = BookieProcess(tmp_path, f"sqlite:{tmp_path}/metadata.db")
    disk = tmp_path / "disk"
    disk.mkdir()
    (disk / "holiday.jpg").write_bytes(b"precious")
    done = init_again(bookie, tmp_path / "new.toml", disk)
    assert done.returncode == 1
    assert str(disk) in done.stderr
    assert "holiday.jpg" in done.stderr
    assert files_of(disk) == {"holiday.jpg": b"precious"}


def test_repair_refuses_an_unknown_bookie(make_bookie: MakeBookie) -> None:
    bookie = make_bookie()
    cluster.delete_cookie(bookie.metadata, bookie.bookie_id)
    for disk in bookie.disks:
        empty(disk)
    done = repair(bookie, check=False)
    assert done.returncode == 1
    assert "bkbox init" in done.stderr
    assert not any((disk / "DISK").exists() for disk in bookie.disks)


def test_one_set_of_disks_has_one_process(make_bookie: MakeBookie) -> None:
    """A second instance, a repair and an index rebuild are all refused while the bookie runs, and do no harm."""
    bookie = make_bookie().start()
    fill(bookie)
    config = str(bookie.config)
    for command in (["run"], ["cookie", "repair", "--yes"], ["index", "rebuild"]):
        done = bkbox(*command, "--config", config, check=False)
        assert done.returncode == 5, done.stderr
        assert "Traceback" not in done.stderr
    assert_nothing_lost_and_nothing_marked(bookie, 5)
    assert bookie.stop() == 0
    assert classes(restart(bookie)) == ["clean", "clean"]


# ---- surroundings that are not as they should be --------------------------------------------------------


def test_a_port_that_is_taken(make_bookie: MakeBookie) -> None:
    bookie = make_bookie()
    with socket.socket() as other:
        other.bind(("127.0.0.1", bookie.port))
        other.listen()
        assert_refused(bookie, f"127.0.0.1:{bookie.port}", "port")
    assert not any((disk / "DIRTY").exists() for disk in bookie.disks)
    assert classes(restart(bookie)) == ["clean", "clean"]


def test_a_folder_that_cannot_be_written(make_bookie: MakeBookie) -> None:
    bookie = make_bookie()
    disk = bookie.disks[1]
    shutil.rmtree(disk)
    disk.write_bytes(b"a file where a folder should be")
    done = bkbox("run", "--config", str(bookie.config), check=False)
    assert done.returncode not in (0, 2)
    assert "Traceback" not in done.stderr
    assert str(disk) in done.stderr
    done = repair(bookie, check=False)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert disk.read_bytes() == b"a file where a folder should be"


def test_a_marker_that_cannot_be_made(make_bookie: MakeBookie) -> None:
    """Nothing else is done to a disk that could not be marked as in use: the other one serves."""
    bookie = make_bookie()
    in_the_way = bookie.disks[1] / "DIRTY.new"
    in_the_way.mkdir()
    before = files_of(bookie.disks[1])
    status = restart(bookie)
    assert [disk["state"] for disk in status["disks"]] == ["in service", "failed"]
    assert str(in_the_way) in status["disks"][1]["reason"]
    assert files_of(bookie.disks[1]) == before
    assert bookie.stop() == 1
    in_the_way.rmdir()
    bookie.start()
    assert bookie.stop() == 0


def test_init_below_a_file(tmp_path: Path) -> None:
    bookie = BookieProcess(tmp_path, f"sqlite:{tmp_path}/metadata.db")
    (tmp_path / "file").write_bytes(b"")
    done = init_again(bookie, tmp_path / "new.toml", tmp_path / "file" / "disk")
    assert done.returncode not in (0, 2)
    assert "Traceback" not in done.stderr
    assert str(tmp_path / "file") in done.stderr


def test_a_metadata_store_that_is_not_there(make_bookie: MakeBookie) -> None:
    bookie = make_bookie()
    Path(bookie.metadata.removeprefix("sqlite:")).unlink()
    assert_refused(bookie, "metadata.db", code=7)
    assert not Path(bookie.metadata.removeprefix("sqlite:")).exists()


def test_every_problem_of_a_configuration_at_once(make_bookie: MakeBookie) -> None:
    bookie = make_bookie()
    with bookie.config.open("a") as file:
        file.write('ack_aftr = "sync"\nsegment_bytes_max = "big"\ndisk_usage_max = 7\n')
    done = bkbox("run", "--config", str(bookie.config), check=False)
    assert done.returncode == 2
    for word in ("ack_aftr", "ack_after", "segment_bytes_max", "disk_usage_max"):
        assert word in done.stderr
    assert done.stderr.count(f"{bookie.config}:") >= 3
