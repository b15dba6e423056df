"""What the tests of the screen share: a bookie as a status document, and a screen as plain text."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from bkbox_tui.app import Tui
from bkbox_tui.snapshot import Snapshot
from bkbox_tui.sources import Bookie, CookieView

from bkbox.api.admin.cluster_members import Member
from bkbox.api.admin.limbo import LimboLedger
from bkbox.api.admin.status import (
    Boot,
    CookieField,
    Cookies,
    Counts,
    Device,
    DiskStatus,
    EndedLedger,
    Latency,
    Limbo,
    Losses,
    Process,
    Rates,
    Replay,
    Role,
    Stage,
    Status,
    StatusWarning,
)
from bkbox.api.cluster.rows import BookieRow, Report, row_of
from bkbox.base.text import counted
from bkbox.errors import NoSuchLedgerError
from bkbox.jobs.job import Amount, Blocker, Job, JobKind, JobState, ProgressEstimate, Rate

SMALL, LARGE = (80, 24), (200, 60)
NOW_MS = 1_700_000_000_000
LOSSES = Losses(
    1,
    (EndedLedger(40, ("ended at entry 19, 2023-11-14 22:00:00 UTC by op@a: lost: entries 3-5",)),),
)


def process(role: Role, name: str, pid: int, mib: int, percent: float) -> Process:
    """One that was started two hours ago and has run since."""
    return Process(
        *(role, name, pid, 0, True),
        memory_bytes=mib << 20,
        cpu_s=73.5,
        cpu_percent=percent,
        started_ms=NOW_MS - 2 * 3_600_000,
    )


def healthy(adds: int = 1_000) -> Status:
    """A bookie with two disks that has nothing to complain of; ``adds`` answered on each disk."""
    stages = tuple(
        Stage(stage, adds, 20, p99, 900, 3_000)
        for stage, p99 in (("queue", 90), ("append", 40), ("fsync", 1_400), ("reply", 1_900))
    )
    disks = tuple(
        DiskStatus(
            path=f"/data/{name}",
            disk=f"uuid-{name}",
            crash_class="clean",
            reason="it was stopped cleanly",
            state="in service",
            ledgers=120,
            limbo_ledgers=0,
            free_bytes=free << 30,
            total_bytes=200 << 30,
            replay=Replay(10, 9, 4_096, 0, 0),
            stages=stages,
            counts=Counts(adds=adds),
            operations=(
                Latency("add", adds, 500, 3_000, 4_000, 5_000, 0, adds, 500, 3_100),
                Latency("read", adds, 40, 200, 300, 400, 0, adds, 40, 210),
            ),
            worker=replace(
                process("worker", f"/data/{name}", pid, mib, percent), disk=f"uuid-{name}"
            ),
        )
        for name, free, pid, mib, percent in (("a", 50, 102, 85, 31.0), ("b", 150, 103, 84, 28.4))
    )
    return Status(
        version="0.1.0",
        bookie_id="10.0.0.1:3181",
        instance_id="5f1d",
        listen="10.0.0.1:3181",
        state="running",
        writable=True,
        ack_after="sync",
        boot=Boot("up", ("/data/a: clean: it was stopped cleanly",)),
        disks=disks,
        processes=(
            process("supervisor", "10.0.0.1:3181", 100, 48, 0.4),
            process("frontend", "10.0.0.1:3181", 101, 62, 12.3),
            *(disk.worker for disk in disks if disk.worker is not None),
            process("repair", "10.0.0.1:3181", 104, 55, 0.0),
        ),
        kernel="compiled",
        taken_ms=NOW_MS,
        cookies=Cookies(
            True,
            tuple(
                CookieField(f"/data/{name}", "instanceId", "5f1d", "5f1d", True) for name in "ab"
            ),
        ),
    )


def in_limbo(ledgers: int = 17, blocked: int = 1) -> Status:
    """The same after the loss of a disk."""
    blockers = tuple(
        Blocker(
            ledger,
            f"{counted(ledger, 'entry', 'are')} missing: 10.0.0.2:3181 is away",
            "bring back 10.0.0.2:3181",
        )
        for ledger in range(1, blocked + 1)
    )
    return replace(
        healthy(),
        limbo=Limbo(ledgers, 3, 1_000, 50, 40, 1 << 20, None if blocked else 45.0, blockers),
        warnings=(
            StatusWarning(
                f"{ledgers} ledgers are in limbo: repair is at work",
                "bkbox job watch 3 --config bookie.toml",
            ),
        ),
    )


def limbo_job(state: JobState = JobState.RUNNING, number: int = 3) -> Job:
    return Job(
        id=number,
        kind=JobKind.LIMBO,
        arguments={},
        created_ms=0,
        state=state,
        step="checking ledger 7",
        percent=15.0,
        done=Amount(3, 1_000, 1 << 20),
        expected=ProgressEstimate(20),
        rate=Rate(0.5, 200.0, 1 << 20),
        eta_s=45.0,
    )


class Script:
    """A source that says one snapshot after another, and then the last one for ever."""

    name = "10.0.0.1:3181"
    is_live = True

    def __init__(self, snapshots: Iterable[Snapshot]) -> None:
        self._snapshots = list(snapshots)
        self.taken = 0

    async def read(self) -> Snapshot:
        self.taken += 1
        return self._snapshots[min(self.taken, len(self._snapshots)) - 1]


class Staged(Bookie):
    """A bookie that says what is on the stage: nothing is asked."""

    def __init__(self, *snapshots: Snapshot, ledgers: Iterable[LimboLedger] = ()) -> None:
        super().__init__(Path("/nonexistent/admin.sock"), None, lambda: 0)
        self._script = Script(snapshots)
        self.ledgers = list(ledgers)
        self.peer_count = 5
        self.asked = 0

    async def read(self) -> Snapshot:
        snapshot = await self._script.read()
        self._status = snapshot.status
        return snapshot

    @property
    def name(self) -> str:
        return "10.0.0.1:3181"

    async def limbo(self) -> list[LimboLedger]:
        self.asked += 1
        return self.ledgers

    async def configuration(self) -> list[tuple[str, str, str]]:
        return [("ack_after", "sync", "default"), ("listen", "10.0.0.1:3181", "bookie.toml:2")]

    async def cookies(self) -> CookieView:
        differences = (
            ("/data/b", "ledgerDirs", "/data/a /data/b", "missing: the directory is empty"),
        )
        return CookieView(False, differences, "run: bkbox cookie repair --config bookie.toml")

    async def explain(self, ledger: int) -> dict[str, object]:
        """Of three bookies one has it all, one is in limbo, one is away."""
        if ledger == 2:
            raise NoSuchLedgerError("there is no ledger 2")
        there = dict.fromkeys(("last_entry", "entries", "fenced"))
        return {
            "state": "IN_RECOVERY",
            "recovery": "recovery is blocked",
            "reason": "entry 6 may have been acknowledged",
            "advice": f"bring back 10.0.0.2:3181, or bkbox ledger end {ledger} --accept-loss",
            "ensemble_size": 3,
            "write_quorum": 3,
            "ack_quorum": 2,
            "fragments": [
                {
                    "first_entry": 0,
                    "last_entry": 6,
                    "below_write_quorum": 7,
                    "below_ack_quorum": 2,
                    "on_no_bookie": [(3, 3)],
                    "not_known_to_be_anywhere": [(5, 6)],
                    "ensemble": ["a:1", "b:2", "c:3"],
                }
            ],
            "bookies": [
                {"bookie": "a:1", "alive": True, "limbo": False, "fenced": True}
                | {"entries": 5, "last_entry": 4, "answers": "EOK"},
                {"bookie": "b:2", "alive": True, "limbo": True, "answers": "EOK"} | there,
                {"bookie": "c:3", "alive": False, "limbo": None, "answers": "TIMEOUT"} | there,
            ],
            "answers": [{"entry": 6, "bookie": "a:1", "says": "does not have it"}],
        }

    async def announced(self) -> list[dict[str, str]]:
        said = {"version": "0.1.0", "address": "10.0.0.1:3181", "admin": "unix:/run/bkbox.sock"}
        return [
            {"id": "10.0.0.1:3181", "instance": "5f1d", **said},
            {"id": "10.0.9.9:3181", "instance": "7777", **said},
        ]

    @asynccontextmanager
    async def cluster(self) -> AsyncIterator[tuple[Any, Any]]:
        yield StagedCluster(self.peer_count), StagedCluster(0)


class StagedCluster:
    """Bookies of which the second is read-only, the third does not answer, and the fourth has stuck ledgers."""

    problem = ""

    def __init__(self, count: int) -> None:
        self.reached: dict[str, Path] = {"10.0.0.2:3181": Path("/nonexistent/2.sock")}
        self._rows = [_bookie(number) for number in range(count)]

    def poll(self) -> None:
        """Nothing: it never changes."""

    def rows(self) -> list[BookieRow]:
        return self._rows


def _bookie(number: int) -> BookieRow:
    host = f"10.0.{number // 250}.{number % 250 + 1}"
    name = f"{host}:3181"
    member = Member(name, name, "writable", "/rack1", "bkbox 0.1.0", f"https://{host}:8080")
    report = Report(
        *("writable", "ok", (), 400 << 30, (400 - 7 * (number % 50 + 1)) << 30, 2, 2),
        *(1_200.0 + number, 310.0, 5.2e6, 3_100, 210, 0, 0, 0, 0, 0, (), NOW_MS - 86_400_000),
        version="bkbox 0.1.0",
    )
    if number == 1:
        why = ("disk /data/a takes no entries for lack of room: disk full",)
        report = replace(report, state="read-only", verdict="warn", problems=why, adds=0.0)
    if number == 2:
        return row_of(member, report, 12.4, "no bookie is running: nothing answers")
    if number == 3:
        why = ("17 ledgers are in limbo, 1 of them stuck: repair is at work",)
        report = replace(
            report, verdict="warn", problems=why, limbo=17, stuck=1, short=961, jobs=("limbo 15%",)
        )
    if number == 4:
        report = replace(report, deleted=40, garbage_bytes=12 << 30)
    return row_of(member, report, None, "")


def past(status: Status, seconds: int = 200) -> Iterable[Snapshot]:
    """The snapshots before one of this status, a second apart: its load and its limbo as they became what they are."""
    adds = reads = busy_ms = 0
    for second in range(seconds, -1, -1):
        wave = 1 + (second * 7 % 20) / 40 + (second % 97) / 97
        adds, reads, busy_ms = adds + int(600 * wave), reads + int(90 * wave), busy_ms + 310
        disks = tuple(
            replace(
                disk,
                counts=Counts(adds, 4_096 * adds, reads),
                rates=Rates(600 * wave, 2.6e6 * wave, 90 * wave),
                device=Device(f"sd{disk.path[-1]}", "ext4", busy_ms=busy_ms),
                operations=tuple(
                    replace(each, recent_p99_us=int(each.recent_p99_us * wave))
                    for each in disk.operations
                ),
            )
            for disk in status.disks
        )
        limbo = status.limbo
        if limbo.ledgers:
            limbo = replace(limbo, ledgers=limbo.ledgers + second // 20)
        now_ms = NOW_MS - 1_000 * second
        yield Snapshot(now_ms, replace(status, disks=disks, limbo=limbo), (limbo_job(),))


def screen(*snapshots: Snapshot) -> Tui:
    """A screen of these snapshots; its clock stands at the last one."""
    return Tui(
        Script(snapshots),
        wall_ms=lambda: snapshots[-1].taken_ms,
        recordings=Path("/nonexistent"),
    )


def screen_of(app: Tui) -> object:
    """Have the compositor make the whole screen."""
    return app.screen._compositor.render_strips()


def lines_of(app: Tui) -> list[str]:
    """What is on the screen, a line each, without styles."""
    strips = app.screen._compositor.render_strips()  # Textual has no public way to read the screen
    return ["".join(segment.text for segment in strip).rstrip() for strip in strips]


def text_of(app: Tui) -> str:
    return "\n".join(lines_of(app))


async def settled(seconds: float = 0.05) -> None:
    """Let what was begun be drawn."""
    await asyncio.sleep(seconds)
