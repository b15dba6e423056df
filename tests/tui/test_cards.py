"""The cards of the overview as text: each line within its width, whatever the status says, with what matters in it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bkbox_tui import cards
from bkbox_tui.answers import answers_of
from bkbox_tui.cards import Line
from bkbox_tui.formatting import Level
from bkbox_tui.history import POINTS, DiskHistory, History
from bkbox_tui.panels.overview import heights_of
from bkbox_tui.snapshot import DiskFiles, Snapshot

from bkbox.api.admin.status import (
    CookieField,
    Cookies,
    Copies,
    Counts,
    Device,
    DiskStatus,
    Rates,
    Status,
)
from bkbox.jobs.job import JobKind
from tests.tui.screens import healthy, in_limbo, limbo_job, past

SIZES = [(20, 4), (26, 4), (46, 4), (76, 4), (116, 8), (196, 8)]


def text(lines: list[Line]) -> list[str]:
    return ["".join(part for part, _ in line) for line in lines]


def history_of(status: Status) -> tuple[History, Snapshot]:
    history, snapshots = History(), list(past(status))
    for snapshot in snapshots:
        history.add(snapshot)
    return history, snapshots[-1]


def extreme() -> Status:
    """Every figure as large as it gets, every text long."""
    status = in_limbo(12_345_678, 100)
    disks = tuple(
        replace(
            disk,
            path="/a" * 100,
            reason="x" * 300,
            rates=Rates(9_999_999.0, 9e12, 9_999_999.0),
            read_only=("operator", "disk full") * number,
            draining=bool(number),
        )
        for number, disk in enumerate(status.disks)
    )
    return replace(status, disks=disks)


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("status", [healthy(), in_limbo(), extreme()], ids=["well", "limbo", "all"])
def test_no_card_is_larger_than_its_space(status: Status, width: int, height: int) -> None:
    history, snapshot = history_of(status)
    answers = answers_of(snapshot)
    assert max(map(len, text(cards.verdict(answers, width, height)))) <= width
    for lines in (
        cards.repair(snapshot, history, width, height),
        cards.repair(None, History(), width, height),
        cards.traffic(history, max(width, 40), height),
    ):
        assert len(lines) <= height
        assert max(map(len, text(lines))) <= max(width, 40)
    for lines in (
        cards.disks(snapshot, history, max(width, 76), height),
        cards.processes(snapshot.status, max(width, 36), height),
    ):
        assert len(lines) <= height
        assert max(map(len, text(lines))) <= max(width, 76)


def test_a_command_is_shown_whole_or_not_at_all() -> None:
    answers = answers_of(Snapshot(1_000, in_limbo()))
    long = "bkbox disk replace " + "/folder" * 12 + " NEW --config bookie.toml"
    answers = replace(answers, next_steps=(("a disk failed " * 20, long), ("more", "other")))
    found = text(cards.verdict(answers, 76, 6))
    assert f"→{long}".replace(" ", "") in "".join(found).replace(" ", "")
    assert not any("bkbox" in line for line in text(cards.verdict(answers, 76, 3)))


def test_the_repair_says_how_far_it_is_and_what_blocks_it() -> None:
    history, snapshot = history_of(in_limbo(17, 1))
    found = "\n".join(text(cards.repair(snapshot, history, 60, 8)))
    for words in ("[X] 17 in limbo", " 15%", "1.0 MiB/s", "1 stuck: 1 entry is missing"):
        assert words in found
    assert "→ bring back 10.0.0.2:3181" in found


def test_other_jobs_have_a_bar_and_idle_ones_are_left_out() -> None:
    scrub = replace(limbo_job(), kind=JobKind.SCRUB, percent=40.0)
    idle = replace(limbo_job(number=9), kind=JobKind.GC, standing_by=True)
    snapshot = Snapshot(1_000, healthy(), (scrub, idle))
    found = text(cards.repair(snapshot, History(), 40, 4))
    assert found[0] == "[+] no ledger in limbo"
    assert found[1] == "scrub, 45 s left"
    assert found[2].endswith(" 40%")
    assert len(found) == 3


def test_copies_that_are_short_are_counted() -> None:
    snapshot = Snapshot(1_000, replace(healthy(), copies=Copies(short=961)))
    assert "[!] 961 copies short" in text(cards.repair(snapshot, History(), 26, 4))
    assert "961 copies are missing here" in answers_of(snapshot).safe


def test_traffic_has_the_figure_now_and_the_top_of_the_scale() -> None:
    history, _ = history_of(healthy())
    found = text(cards.traffic(history, 60, 4))
    assert [line.split()[0] for line in found] == ["adds", "p99", "reads", "p99"]
    assert "1,200/s max 2,1" in found[0] or "/s max " in found[0]
    assert "3.1 ms max " in found[1]
    assert len({len(line) for line in found}) == 1, "figures are aligned"


def only(status: Status, **changes: object) -> Status:
    disk = replace(status.disks[0], **changes)  # type: ignore[arg-type]
    return replace(status, disks=(disk,))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "[+] /data/a"),
        ({"state": "failed", "reason": "EIO"}, "[X] /data/a    failed: EIO"),
        ({"state": "out of service", "reason": "away"}, "[!] /data/a    out of service: away"),
        ({"read_only": ("disk full",)}, "    disk full"),
        ({"draining": True}, "[~] /data/a"),
        ({"total_bytes": 0}, "?"),
    ],
)
def test_a_disk_by_its_state(changes: dict[str, object], words: str) -> None:
    snapshot = Snapshot(1_000, only(healthy(), **changes))
    (line,) = text(cards.disks(snapshot, History(), 76, 2))
    assert words in line
    assert line.endswith("cookie [+]")


def test_the_smallest_terminal_breaks_no_card() -> None:
    snapshot = Snapshot(1_000, only(healthy(), state="failed", reason="EIO"))
    assert len(cards.disks(snapshot, History(), 10, 1)) == 1
    assert len(cards.processes(snapshot.status, 10, 1)) == 1
    assert len(cards.traffic(History(), 10, 4)) == 4


def test_a_cookie_is_that_of_its_disk() -> None:
    status = healthy()
    differs = CookieField("/data/b", "ledgerDirs", "a b", "missing", False)
    status = replace(status, cookies=Cookies(False, (*status.cookies.fields, differs)))
    assert cards.cookie_level(status, "/data/a") is Level.GOOD
    assert cards.cookie_level(status, "/data/b") is Level.BAD
    assert cards.cookie_level(replace(status, cookies=Cookies()), "/data/a") is Level.UNKNOWN


def test_a_bookie_that_is_down_shows_its_files() -> None:
    files = (
        DiskFiles("/data/a", "u", "stopped cleanly", 1, 2, ""),
        DiskFiles("/data/b", "", "", 0, 0, "it cannot be looked at"),
    )
    found = text(cards.disks(Snapshot(1, None, (), "", files), History(), 76, 2))
    assert found[0].startswith("[?] /data/a")
    assert "stopped cleanly" in found[0]
    assert "[X] /data/b" in found[1]


def test_processes_in_trouble_come_first() -> None:
    status = healthy()
    supervisor, frontend, first, second, repair = status.processes
    processes = (
        supervisor,
        replace(frontend, stalled_s=12.0),
        replace(first, restarts=2),
        second,
        repair,
    )
    (line,) = text(cards.processes(replace(status, processes=processes), 200, 1))
    order = ("[X] frontend", "[!] worker /data/a", "[+] supervisor", "[+] repair", "[+] worker")
    places = [line.index(words) for words in order]
    assert places == sorted(places)
    assert "stalled 12 s" in line
    assert "2 restarts" in line


@pytest.mark.parametrize("height", [20, 24, 30, 36, 56])
@pytest.mark.parametrize("disks", [0, 1, 2, 12, 40])
def test_the_cards_fill_the_screen_and_no_more(height: int, disks: int) -> None:
    heights = heights_of(height, disks)
    assert min(heights) >= 1
    assert sum(heights) + 8 <= height


# ---- history ------------------------------------------------------------------------------------


def with_device(disk: DiskStatus, busy_ms: int) -> DiskStatus:
    return replace(disk, device=Device("sda", "ext4", busy_ms=busy_ms))


def test_the_use_of_a_device_is_that_since_the_snapshot_before() -> None:
    history, status = History(), healthy()
    for second, busy_ms in enumerate((1_000, 1_250, 4_000, 10)):
        disks = tuple(with_device(disk, busy_ms) for disk in status.disks)
        history.add(Snapshot(1_000 * second, replace(status, disks=disks)))
        expected = (None, 0.25, 1.0, None)[second]  # a host that was started again counts anew
        assert history.busy.get("uuid-a") == expected


def test_a_snapshot_that_is_no_newer_adds_nothing_and_all_is_bounded() -> None:
    history, status = History(), healthy()
    for second in range(2 * POINTS):
        history.add(Snapshot(1_000 * second, status))
        history.add(Snapshot(1_000 * second, status))
    assert len(history.adds_per_s) == len(history.limbo) == POINTS
    assert history.adds_per_s[-1] == 0.0


def test_a_worker_that_was_started_again_takes_nothing_from_what_the_others_did() -> None:
    history, status = History(), healthy()
    one, two = status.disks

    def at(second: int, adds: tuple[int, int]) -> None:
        disks = (
            replace(one, counts=Counts(adds=adds[0])),
            replace(two, counts=Counts(adds=adds[1])),
        )
        history.add(Snapshot(1_000 * second, replace(status, disks=disks)))

    at(10, (9_000, 1_000))
    at(11, (40, 1_500))
    assert history.adds_per_s[-1] == 540.0
    at(12, (140, 1_600))
    assert history.adds_per_s[-1] == 200.0
    at(3, (240, 1_700))  # the clock was set back
    at(4, (340, 1_800))
    assert history.adds_per_s[-1] == 200.0


def test_the_use_of_a_device_is_drawn_on_the_scale_of_a_share() -> None:
    history = DiskHistory()
    history.busy.extend([0.25] * 40)
    busy = text(cards.disk_trends(history, 60, 4))[-1]
    assert "▂" in busy
    assert "█" not in busy
    assert "max 100%" in busy
