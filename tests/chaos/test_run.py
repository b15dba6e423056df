"""A short run of real processes: nothing is lost, nothing is left behind, and its history tells a lie from the truth.

``CHAOS_SEED`` names another seed; with ``CHAOS_LONG`` set, bookies without a safety measure have to be found out, too.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.harness.documents import document

CHAOS = [sys.executable, "-m", "bkbox.cli.main", "chaos"]
SEED = os.environ.get("CHAOS_SEED", "1")
MINUTES = 0.15


def chaos(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*CHAOS, *arguments], capture_output=True, text=True)


def processes_of(folder: Path) -> list[str]:
    """Command lines that name the folder."""
    found = []
    for item in Path("/proc").iterdir():
        if item.name.isdigit() and int(item.name) != os.getpid():
            try:
                words = (item / "cmdline").read_bytes().decode(errors="replace")
                folder_of_it = os.readlink(item / "cwd")
            except OSError:
                continue
            if str(folder) in words or folder_of_it.startswith(str(folder)):
                found.append(words.replace("\0", " "))
    return found


@pytest.mark.timeout(180)
def test_a_run(tmp_path: Path) -> None:
    print(f"CHAOS_SEED={SEED}")
    folder = tmp_path / "run"
    words = ("--minutes", str(MINUTES), "--seed", SEED, "--every", "0.7", "--dir", str(folder))
    done = chaos(*words, "-o", "json")
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert done.stderr.startswith(f"seed {SEED}\n")
    verdict = document(done.stdout, "chaos")
    assert (verdict["seed"], verdict["complete"]) == (int(SEED), True)
    assert verdict["violations"] == []
    adds = verdict["operations"]["add"]["ok"]
    faults = sum(each["times"] for each in verdict["faults"])
    assert adds > 0
    assert faults > 0
    assert processes_of(tmp_path) == []
    assert {item.suffix for item in folder.iterdir()} == {".jsonl", ".log"}

    history = folder / "history.jsonl"
    again = chaos("check", str(history))
    assert again.returncode == 0, again.stderr
    fields = dict(line.split("  ", 1) for line in again.stdout.splitlines() if "  " in line)
    assert fields["violations"].strip() == "0"
    assert fields["came to its end"].strip() == "yes"
    assert fields["adds acknowledged"].strip() == f"{adds:,}"
    assert fields["faults"].strip() == f"{faults:,}"
    assert yaml.safe_load(chaos("check", str(history), "-o", "yaml").stdout) == verdict

    tampered = tmp_path / "tampered.jsonl"
    lose_an_entry(history, tampered)
    lie = chaos("check", str(tampered))
    assert lie.returncode == 1
    assert "violation: acknowledged entries can be read: " in lie.stdout
    lie = chaos("check", str(tampered), "-o", "json")
    assert lie.returncode == 1
    first, *_ = document(lie.stdout, "chaos", "check")["violations"]
    assert first["name"] == "acknowledged entries can be read"


def lose_an_entry(history: Path, tampered: Path) -> None:
    """What the last read of all gave, but for the last entry of a ledger whose writer has closed it."""
    lines = [json.loads(line) for line in history.read_text().splitlines()]
    acknowledged = {line["ledger"]: line["entry"] for line in lines if is_acknowledged(line)}
    last_parts = {
        line["ledger"]: line for line in lines if line["kind"] == "found" and line["by"] == "judge"
    }
    for ledger, line in last_parts.items():
        end = line["first"] + len(line["digests"]) - 1
        if acknowledged.get(ledger, -1) >= end:
            line["digests"].pop()
            break
    tampered.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))


def is_acknowledged(line: dict[str, object]) -> bool:
    return line["kind"] == "end" and line["op"] == "add" and line["outcome"] == "ok"


@pytest.mark.timeout(120)
def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    running = subprocess.Popen(
        [*CHAOS, "--minutes", "5", "--seed", SEED, "--every", "0.5"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    deadline = time.monotonic() + 60
    while not any('"op":"fault"' in each.read_text() for each in tmp_path.glob("*/history.jsonl")):
        assert time.monotonic() < deadline, "no fault yet"
        assert running.poll() is None, running.communicate()
        time.sleep(0.1)
    running.send_signal(signal.SIGINT)
    printed, said = running.communicate(timeout=60)
    assert printed == f"seed {SEED}\n"
    assert running.returncode != 0
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []
    assert processes_of(tmp_path) == []


@pytest.mark.skipif("CHAOS_LONG" not in os.environ, reason="takes a minute: CHAOS_LONG=1")
@pytest.mark.parametrize("measures", ["no-limbo", "no-limbo,no-fence-on-boot"])
def test_a_bookie_without_a_safety_measure_is_found_out(tmp_path: Path, measures: str) -> None:
    unsafe = Path(__file__).parent.parent / "harness" / "unsafe"
    faults = ("--fault", "lost-disk", "--fault", "kill-worker", "--fault", "pause-bookie")
    done = subprocess.run(
        [*CHAOS, "--minutes", "0.7", "--seed", SEED, "--every", "1.5", *faults],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "TMPDIR": str(tmp_path),
            "PYTHONPATH": str(unsafe),
            "UNSAFE_BOOKIE": measures,
        },
    )
    assert done.returncode == 1, done.stdout + done.stderr[-3000:]
    # Where the seed loses one copy only it is the copies that are too few.
    found = ("violation: acknowledged entries", "violation: enough copies")
    assert any(each in done.stdout for each in found), done.stdout
    (kept,) = tmp_path.glob("bkbox-chaos-*")
    assert str(kept / "history.jsonl") in done.stderr
    assert (kept / "bookie1" / "room").is_dir()


def test_a_folder_that_is_not_empty_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("data")
    done = chaos("--minutes", "0.1", "--dir", str(tmp_path))
    assert done.returncode == 2
    assert "is not empty" in done.stderr
    assert (tmp_path / "precious").read_text() == "data"


def test_the_kinds_of_faults() -> None:
    done = chaos("--list-faults")
    names = [line.split()[0] for line in done.stdout.splitlines()]
    assert {"kill-worker", "pause-frontend", "cut-network", "lost-disk", "full-disk"} <= set(names)
    assert len(names) == len(set(names)) >= 20
    listed = document(chaos("--list-faults", "-o", "json").stdout, "chaos")
    assert [each["name"] for each in listed] == names
