"""Mixed load and every kind of abuse, over and over: what a bookie keeps at the end that it should not.

``python -m tests.security.soak [--minutes 30] [--report]``: one bookie of two disks with TLS offered and its admin API
over TCP. Beside it, all the time: a client that adds and reads back, and one that makes, fills, reads, closes and
deletes ledgers. The kinds of abuse (kinds.py) take turns, ten seconds each; after each round of
them the abuse rests for three seconds and the processes of the bookie are looked at. When half of the time has passed,
everything has been at work once (housekeeping begins after ten minutes, and looks again after five): from then on
memory, descriptors, threads and shared memory have to stay where they were; no process may be a zombie or have been
started again, nothing may be held for clients that are gone, and every entry that was acknowledged has to be there.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from bkbox import metadata
from bkbox.api.admin.client import fetch_status
from bkbox.base.ids import BookieId, EntryId, LedgerId
from bkbox.client import connect
from bkbox.errors import BkboxError
from bkbox.wire.metadata.ledger import Fragment, LedgerMetadata, LedgerState
from tests.bench.peers.report import machine, replace_between
from tests.harness.processes import BookieProcess, free_port
from tests.harness.raw import RawClient
from tests.security.abuse import PAGE
from tests.security.certificates import Authority, secret_file
from tests.security.idle import lost, work
from tests.security.kinds import AT, KINDS

TURN_S, REST_S, SETTLE_S = 10.0, 3.0, 45.0
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Look:
    """What the processes of a bookie have; memory in bytes. ``shared``: of anonymous memory that they share."""

    minute: float
    rss: dict[str, int]
    descriptors: int
    threads: int
    shared: int
    zombies: int
    restarts: int
    connections: int
    buffered_bytes: int


def look(bookie: BookieProcess, minute: float) -> Look:
    status = fetch_status(bookie.disks[0] / "admin.sock")
    assert bookie.process is not None
    processes = {"supervisor": [psutil.Process(bookie.process.pid)]}
    for role in ("frontend", "worker", "repair"):
        processes[role] = bookie.children(role)
    everybody = [each for of_role in processes.values() for each in of_role]
    descendants = psutil.Process(bookie.process.pid).children(recursive=True)
    return Look(
        minute,
        {role: sum(each.memory_info().rss for each in of) for role, of in processes.items()},
        sum(each.num_fds() for each in everybody),
        sum(each.num_threads() for each in everybody),
        sum(_shared(each.pid) for each in everybody),
        sum(each.status() == psutil.STATUS_ZOMBIE for each in descendants),
        sum(each.restarts for each in status.processes),
        status.clients.connections,
        status.clients.buffered_bytes,
    )


def _shared(pid: int) -> int:
    """Bytes of memfds that a process has mapped and touched."""
    total, counts = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        head = line.split()[0]
        if "-" in head and not head.endswith(":"):
            counts = "/memfd:" in line
        elif counts and head == "Rss:":
            total += int(line.split()[1]) * 1024
    return total


def problems(looks: list[Look], ours: int) -> list[str]:
    """What is not as flat as it has to be; ``ours``: connections that are there."""
    settled, last = looks[len(looks) // 2], looks[-1]
    found = [
        f"{role}: {settled.rss[role] / MIB:.0f} MiB became {last.rss[role] / MIB:.0f}"
        for role in last.rss
        if last.rss[role] > 1.1 * settled.rss[role] + 16 * MIB
    ]
    for name, slack in (("descriptors", 16), ("threads", 4), ("shared", 4 * MIB)):
        before, after = getattr(settled, name), getattr(last, name)
        if after > before + slack:
            found.append(f"{name}: {before} became {after}")
    for name in ("zombies", "restarts", "buffered_bytes"):
        if getattr(last, name):
            found.append(f"{name}: {getattr(last, name)}")
    if last.connections > ours:
        found.append(f"connections: {last.connections}, of which {ours} are the clients'")
    return found


def connected(bookie: BookieProcess) -> list[str]:
    """Every socket of the front-end that has a peer, and which process that is."""
    everywhere = psutil.net_connections("tcp")
    owners = {each.laddr: each.pid for each in everywhere if each.pid}
    front_ends = {each.pid for each in bookie.children("frontend")}
    return [
        f"{each.status} from {each.raddr} of {' '.join(_command(owners.get(each.raddr)))}"
        for each in everywhere
        if each.pid in front_ends and each.raddr
    ]


def _command(pid: int | None) -> list[str]:
    return psutil.Process(pid).cmdline()[-6:] if pid else ["nobody on this machine"]


# ---- clients that behave -----------------------------------------------------------------------------


async def known(uri: str, name: str) -> None:
    """The ledgers of the raw clients are in the metadata, as a bookie collects what is not."""
    async with await metadata.connect(uri) as store:
        for ledger in (1, 9):
            ensemble = (Fragment(EntryId(0), (BookieId(name),)),)
            await store.create_ledger(
                LedgerMetadata(LedgerId(ledger), 1, 1, 1, LedgerState.OPEN, ensemble)
            )


async def _ledgers(uri: str, until: float) -> int:
    """Make, fill, read, close and delete ledgers; how many."""
    count = 0
    async with connect(uri, protocol="v3") as client:
        while time.monotonic() < until:
            async with await client.create_ledger(1, 1, 1) as writer:
                for number in range(200):
                    await writer.append(b"%d" % number)
                ledger = writer.ledger_id
            reader = await client.open_ledger(ledger)
            found = [bytes(entry.payload) async for entry in reader.read(0, 199)]
            assert found == [b"%d" % number for number in range(200)]
            if count % 2:
                await client.delete_ledger(ledger)
            count += 1
            await asyncio.sleep(0.2)
    return count


def _ledger_load(uri: str, seconds: float, said: Any) -> None:
    import warnings

    warnings.simplefilter("ignore")  # one bookie is all there is
    try:
        said.put(asyncio.run(_ledgers(uri, time.monotonic() + seconds)))
    except (BkboxError, AssertionError) as error:
        said.put(f"{type(error).__name__}: {error}")


# ---- the whole --------------------------------------------------------------------------------------


def run(folder: Path, minutes: float) -> tuple[list[Look], list[str]]:
    """What was seen, and what is wrong with it."""
    authority = Authority(folder / "authority")
    pair = authority.issue("bookie")
    http = free_port()
    bookie = BookieProcess(folder, f"sqlite:{folder}/metadata.db").init(
        disks=2,
        segment_bytes_max=64 * MIB,
        checkpoint_bytes=16 * MIB,
        tls="offered",
        tls_certificate_file=pair.certificate,
        tls_key_file=pair.key,
        http_tls="required",
        http_listen=f"127.0.0.1:{http}",
        http_token_file=secret_file(folder / "token", "t" * 32),
        handshake_timeout_s=5,
        frame_timeout_s=10,
        answers_timeout_s=10,
    )
    bookie.start()
    asyncio.run(known(bookie.metadata, bookie.bookie_id))
    context = multiprocessing.get_context("spawn")
    told = context.Queue()
    loading = context.Process(target=_ledger_load, args=(bookie.metadata, minutes * 60, told))
    looks: list[Look] = []
    entry = 0
    try:
        loading.start()
        began = time.monotonic()
        with RawClient(bookie.port) as good:
            mine = str(good.sock.getsockname()[1])
            while time.monotonic() < began + minutes * 60:
                for kind in (each for each in KINDS if AT.get(each) != "guarded"):
                    command = [sys.executable, "-m", "tests.security.kinds", kind]
                    command += [
                        "--port",
                        str(bookie.port),
                        "--tls",
                        str(bookie.port),
                        "--http",
                        str(http),
                    ]
                    abuser = subprocess.Popen([*command, "--seconds", str(TURN_S)])
                    try:
                        _, entry = work(good, TURN_S, entry)
                    finally:
                        abuser.terminate()
                        abuser.wait()
                _, entry = work(good, REST_S, entry)
                looks.append(look(bookie, (time.monotonic() - began) / 60))
                print(row(looks[-1]), flush=True)
            loading.join(60)
            # Those whom a flood has left in the queues are looked at as their share of the time allows.
            _, entry = work(good, SETTLE_S, entry)
            looks.append(look(bookie, (time.monotonic() - began) / 60))
            print(row(looks[-1]), flush=True)
            wrong = problems(looks, ours=1)
            if wrong:
                print(*connected(bookie), sep="\n", file=sys.stderr)
            ledgers = told.get(timeout=10)
            if not isinstance(ledgers, int):
                wrong.append(f"the client that makes ledgers: {ledgers}")
            missing = lost(good, range(entry))
            if missing:
                wrong.append(f"{len(missing)} of {entry} acknowledged entries are lost")
            print(f"{entry} entries of one ledger, {ledgers} ledgers", file=sys.stderr)
    except EOFError:
        said = [line for line in bookie.stderr.splitlines() if mine in line or " [error " in line]
        print(kind, *said[-20:], sep="\n", file=sys.stderr)
        raise
    finally:
        loading.terminate()
        loading.join()
        bookie.stop()
    return looks, wrong


HEAD = """\
| minute | supervisor | front-end | workers | repair | descriptors | threads | shared memory |
|--:|--:|--:|--:|--:|--:|--:|--:|"""


def row(seen: Look) -> str:
    memory = " | ".join(
        f"{seen.rss[role] / MIB:.0f} MiB" for role in ("supervisor", "frontend", "worker", "repair")
    )
    return (
        f"| {seen.minute:.1f} | {memory} | {seen.descriptors} | {seen.threads} "
        f"| {seen.shared >> 10} KiB |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--report", action="store_true", help="write the table of docs/security.md")
    asked = parser.parse_args()
    print(HEAD)
    with tempfile.TemporaryDirectory() as folder:
        looks, wrong = run(Path(folder), asked.minutes)
    verdict = "\n".join(f"- {each}" for each in wrong) or "Nothing was left behind."
    print(verdict)
    if asked.report:
        shown = looks if len(looks) <= 8 else [*looks[:4], *looks[-4:]]
        rows = "\n".join(map(row, shown))
        text = f"{asked.minutes:.0f} minutes. {machine()}.\n\n{HEAD}\n{rows}\n\n{verdict}"
        PAGE.write_text(replace_between(PAGE.read_text(), "soak", text))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
