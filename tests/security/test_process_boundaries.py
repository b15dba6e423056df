"""What the processes of a bookie may do to each other, and what other users of the host see of them."""

from __future__ import annotations

import contextlib
import os
import pkgutil
import re
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import bkbox as package
from bkbox.ipc.messages.disk import ClearDirtyMarker, ClearLimbo, DiskFailed, MarkLedgers
from bkbox.ipc.messages.frontend import Listening
from bkbox.ipc.messages.items import LEDGER_ID_ITEM
from bkbox.ipc.messages.message import encode
from bkbox.ipc.messages.migration import CommitImport, EndExport, FindDisk, MoveLedger
from bkbox.ipc.messages.process import Stop, Stopped
from bkbox.ipc.messages.repair import Draining, JobReport, OverQuota, Retiring, StartJob
from bkbox.ipc.messages.space import ChangeLedgers
from tests.harness import raw
from tests.harness.cluster import NOBODY, create_ledgers, empty, ledger_of
from tests.harness.processes import BookieProcess, bkbox
from tests.harness.raw import RECOVERY, RawClient, master_key
from tests.harness.waiting import wait_for

HOOKS = Path(__file__).parent / "hooks"
PAYLOAD = b"what-an-entry-holds-" * 3
KEY = master_key(b"")
LOST = range(500, 503)
MINE = 900


def open_files(process: psutil.Process) -> list[tuple[str, int]]:
    """What a process has open: target and mode of each file descriptor. One that is closed meanwhile is left out."""
    found = []
    for entry in Path(f"/proc/{process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append((os.readlink(entry), entry.stat().st_mode))
    return found


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BookieProcess, Path]]:
    """A bookie with ledgers in limbo, whose front-end can be taken over; and its script. Everything is made with the
    umask that lets everybody read."""
    root = tmp_path_factory.mktemp("boundaries")
    script = root / "script"
    made = BookieProcess(root, f"sqlite:{root}/metadata.db")
    before = os.umask(0o000)
    try:
        made.init(disks=1, repair_retry_initial_s=600, repair_retry_max_s=600)
        create_ledgers(
            made.metadata, [ledger_of(ledger, [made.bookie_id, NOBODY]) for ledger in LOST]
        )
        empty(made.disks[0])
        bkbox("cookie", "repair", "--config", str(made.config), "--yes")
        made.start(environment={"PYTHONPATH": f"{HOOKS}:{os.getcwd()}", "TAKEN_OVER": str(script)})
    finally:
        os.umask(before)
    with RawClient(made.port) as client:
        assert client.add(MINE, 0, PAYLOAD) == raw.EOK
    yield made, script
    made.ensure_gone()


# ---- other users ------------------------------------------------------------------------------------


def test_nothing_on_a_disk_is_for_others(scene: tuple[BookieProcess, Path]) -> None:
    """Whoever has made the folder of the disk itself: here it was a test, and everybody may look into it."""
    bookie, _script = scene
    [disk] = bookie.disks
    found = list(disk.rglob("*"))
    assert {"entrylog", "index", "LOCK", "VERSION", "admin.sock"} <= {each.name for each in found}
    for path in found:
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:  # a temporary file of the running bookie
            continue
        assert not stat.S_ISLNK(mode), path
        if path.parent.name != "index":  # LevelDB's own, in a folder that nobody else gets into
            assert mode & 0o077 == 0, f"{path}: {stat.filemode(mode)}"


def test_shared_memory_has_no_name_and_is_for_nobody_else(
    scene: tuple[BookieProcess, Path],
) -> None:
    bookie, _script = scene
    seen = 0
    for process in bookie.children():
        for target, mode in open_files(process):
            assert not target.startswith("/dev/shm"), target
            if target.startswith("/memfd:"):
                seen += 1
                assert mode & 0o077 == 0, target
    assert seen >= 4, "two areas at either end of a link"


def test_nothing_listens_but_the_port_of_the_bookie(scene: tuple[BookieProcess, Path]) -> None:
    """The admin API is a socket in the folder of a disk, unless a port is asked for."""
    bookie, _script = scene
    assert bookie.process is not None
    ports = set()
    for process in (psutil.Process(bookie.process.pid), *bookie.children()):
        for each in process.net_connections("all"):
            if each.status == psutil.CONN_LISTEN or (each.type == 2 and each.family != 1):
                ports.add(each.laddr.port)
    assert ports == {bookie.port}


def test_metrics_and_status_tell_neither_payloads_nor_keys(
    scene: tuple[BookieProcess, Path],
) -> None:
    bookie, _script = scene
    told = scraped(bookie.disks[0] / "admin.sock") + str(bookie.status())
    assert "bkbox_" in told
    for secret in (PAYLOAD.decode()[:20], KEY.hex(), str(KEY)):
        assert secret not in told


def scraped(path: Path) -> str:
    """What Prometheus would get."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(path))
        sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return b"".join(iter(lambda: sock.recv(1 << 16), b"")).decode()


# ---- processes of the bookie ------------------------------------------------------------------------


def test_the_front_end_has_no_file_of_a_disk(scene: tuple[BookieProcess, Path]) -> None:
    bookie, _script = scene
    for frontend in bookie.children("frontend"):
        held = [name for name, _mode in open_files(frontend)]
        maps = Path(f"/proc/{frontend.pid}/maps").read_text()
        assert held
        assert not [name for name in held if name.startswith(str(bookie.root))]
        assert str(bookie.root) not in maps


NUMBERS = (0, 1, 2, 5, 10**6)
ORDERS = [
    *(ClearLimbo(ledger=ledger, call=1) for ledger in LOST),
    ClearDirtyMarker(call=2),
    MarkLedgers(payload=bytes(30), call=2),
    ChangeLedgers(action="trash", payload=bytes(8), call=1),
    *(
        ChangeLedgers(action=action, payload=LEDGER_ID_ITEM.pack(LOST[0]), call=number)
        for action in ("trash", "empty", "forget", "restore")
        for number in NUMBERS
    ),
    CommitImport(ledger=LOST[0], commit=True, call=3),
    EndExport(ledger=LOST[0], migrated=True, call=3),
    MoveLedger(ledger=LOST[0], source="a", target="b", since=[0, 0], call=4),
    Draining(disk="a", wanted=True, call=4),
    Retiring(wanted=True, call=4),
    FindDisk(disk="a", call=4),
    StartJob(id=7, kind="decommission", arguments={}),
    JobReport(values={"id": 7, "state": "done"}),
    OverQuota(payload=bytes(8)),
    DiskFailed(reason="\x1b[2J it says so"),
    Stop(call=5),
    Stopped(clean=True),
    Listening(),
]


@pytest.mark.parametrize("where", ["channel", "links"])
def test_a_front_end_that_was_taken_over_clears_no_limbo(
    scene: tuple[BookieProcess, Path], where: str
) -> None:
    bookie, script = scene
    assert bookie.process is not None
    supervisor = psutil.Process(bookie.process.pid)
    before = supervisor.num_fds()
    said = [encode(order) for order in ORDERS] + [b"\0", b"\xff" * 40, b"\4\0\0\0{}{}"]
    beside = script.with_suffix(".new")
    beside.write_text("\n".join((where, *(message.hex() for message in said))))
    beside.rename(script)
    wait_for(lambda: not script.exists(), "all to be said")

    def still_there() -> bool:
        status = bookie.status()
        assert status["limbo"]["ledgers"] == len(LOST)
        return bool(status["state"] == "running" and status["disks"][0]["state"] == "in service")

    heard = {"channel": "a control message cannot be decoded", "links": "no whole messages"}[where]
    wait_for(lambda: heard in bookie.stderr, "it to be heard")
    wait_for(still_there, "the bookie to serve on")
    assert supervisor.num_fds() < before + 10, "descriptors that nobody asked for are closed"
    with RawClient(bookie.port) as client:
        wait_for(lambda: client.read(MINE, 0).code == raw.EOK, "a link to the disk")
        for ledger in LOST:
            # Nor by anything that clients may say, whose frames are all that the links carry.
            assert client.add(ledger, 0, b"x") == raw.EFENCED
            assert client.add(ledger, 1, b"x", RECOVERY) == raw.EOK
            client.fence(ledger)
            assert client.read(ledger, 5).code == raw.EIO, "unknown, and not denied"
        assert raw.payload_of(client.read(MINE, 0).body) == PAYLOAD


# ---- what the code may use --------------------------------------------------------------------------

CODE_FROM_DATA = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "multiprocessing"}
OF_OPERATORS = {"audit"}
"""Commands that start processes of their own, which nobody else can talk to."""


IMPORTED = re.compile(r"^\s*(?:from|import) +([\w.]+)", re.MULTILINE)


def test_no_process_runs_code_that_another_sends() -> None:
    root = Path(package.__file__).parent
    for path in root.rglob("*.py"):
        names = set(IMPORTED.findall(path.read_text()))
        roots = {name.partition(".")[0] for name in names}
        if path.relative_to(root).parts[0] not in OF_OPERATORS:
            assert not roots & CODE_FROM_DATA, path
        assert not any(name.startswith("google.protobuf") for name in names), (
            f"{path}: requests are read by bkbox/wire/protobuf.py alone"
        )


IMPORT_ALL = """
import importlib, pkgutil, sys
def refuse(event, arguments):
    if event.startswith("socket.") and event not in ("socket.__new__", "socket.gethostname"):
        raise SystemExit(f"{event} {arguments}")
    if event in ("subprocess.Popen", "os.system", "os.fork", "urllib.Request"):
        raise SystemExit(f"{event} {arguments}")
sys.addaudithook(refuse)
import bkbox
names = [each.name for each in pkgutil.walk_packages(bkbox.__path__, "bkbox.")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(len(names))
"""


def test_nothing_is_asked_of_the_network_by_an_import() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) == len(list(pkgutil.walk_packages(package.__path__, "bkbox."))) > 200
