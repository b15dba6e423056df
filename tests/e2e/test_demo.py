"""`bkbox demo` as a newcomer runs it: real bookies, real input, nothing left behind."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
from pathlib import Path
from typing import IO

import psutil
import pytest

from tests.harness.processes import BKBOX, bkbox
from tests.harness.waiting import wait_for

Demo = subprocess.Popen[str]

FILES = {
    "empty": b"",
    "one byte": b"x",
    "folder/text.txt": b"".join(b"line %d\n" % number for number in range(20_000)),
    "folder/new\nline": os.urandom(50_000),
    "last.bin": bytes(range(256)) * 400,
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    for name, data in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


def environment(temporary: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(temporary), "BKBOX_LISTEN": "nonsense for the demo"}


def processes_of(folder: Path) -> list[psutil.Process]:
    """Whatever runs in the folder or was started with a name of it."""
    found = []
    for process in psutil.process_iter():
        try:
            if str(folder) in process.cwd() or any(str(folder) in a for a in process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return [process for process in found if process.pid != os.getpid()]


def test_the_whole_story(source: Path, temporary: Path) -> None:
    done = bkbox("demo", "--plain", "--input", str(source), env=environment(temporary), timeout=120)
    lines = done.stdout.splitlines()
    told = " ".join(done.stdout.split())
    for name, data in FILES.items():
        shown = name.replace("\n", "\\n")
        assert f"{hashlib.sha256(data).hexdigest()}  {shown}" in lines
    for number in range(1, 7):
        assert any(line.startswith(f"== Step {number} of 6: ") for line in lines)
    for text in (
        "5 processes killed",
        "process crash: the bookie did not stop cleanly",
        "error: cookie mismatch: bookie2/disk",
        "$ bkbox cookie repair --yes --config bookie2.toml",
        "disk replaced:",
        "phase one: 1 ledger fenced, 1 in limbo, of 1 seen",
        "answered EIO",
        "0 'no such entry'",
        "limbo is empty",
        "is fenced:",
        "LedgerFenced",
        "nothing acknowledged was lost",
    ):
        assert text in told
    assert not any(len(line) > 100 for line in lines)
    assert list(temporary.iterdir()) == []
    assert processes_of(temporary) == []


def play_until(line: str, *arguments: str, temporary: Path, stdin: IO[bytes] | None = None) -> Demo:
    """A demo that has just printed this."""
    demo = subprocess.Popen(
        [*BKBOX, "demo", "--plain", *arguments],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(temporary),
    )
    assert demo.stdout is not None
    assert any(said.startswith(line) for said in demo.stdout)
    return demo


def test_ended_in_the_middle_it_leaves_nothing(source: Path, temporary: Path) -> None:
    with play_until("== Step 2", "--input", str(source), temporary=temporary) as demo:
        assert processes_of(temporary) != []
        demo.send_signal(signal.SIGTERM)
        out, err = demo.communicate(timeout=60)
    assert demo.returncode == 1
    assert "FAILED: step 2" in out
    assert "Traceback" not in err
    assert processes_of(temporary) == []
    assert list(temporary.iterdir()) == []


def test_keep_leaves_the_files(source: Path, temporary: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    with (source / "last.bin").open("rb") as stream:
        demo = play_until(
            *("== Step 2", "--input", "-", "--keep", str(kept)), temporary=temporary, stdin=stream
        )
    with demo:
        demo.send_signal(signal.SIGINT)
        demo.communicate(timeout=60)
    assert demo.returncode == 1
    assert processes_of(kept) == []
    assert {"bookie1.toml", "bookie1", "bookie1.log", "metadata.db"} <= set(os.listdir(kept))
    again = bkbox("demo", "--keep", str(kept), check=False)
    assert again.returncode == 2
    assert f"error: {kept} is not empty" in again.stderr


def test_killed_it_leaves_no_process(source: Path, temporary: Path) -> None:
    with play_until("ok: ready", "--input", str(source), temporary=temporary) as demo:
        assert processes_of(temporary) != []
        demo.kill()
        demo.communicate(timeout=60)
    wait_for(lambda: processes_of(temporary) == [], "the end of every process")


def test_a_step_that_fails_is_named_with_the_logs(source: Path, temporary: Path) -> None:
    with play_until("== Step 2", "--input", str(source), temporary=temporary) as demo:
        (stage,) = temporary.iterdir()
        (stage / "bookie1.toml").write_text("nonsense = true\n")
        out, err = demo.communicate(timeout=60)
    assert demo.returncode == 1
    assert "FAILED: step 2" in out
    assert "the end of the log of bookie 1:" in err
    assert "error: bookie 1 did not start" in err
    assert processes_of(temporary) == []
    assert list(temporary.iterdir()) == []


def test_input_that_is_not_there(temporary: Path) -> None:
    missing = temporary / "missing"
    done = bkbox("demo", "--input", str(missing), env=environment(temporary), check=False)
    assert done.returncode == 2
    assert done.stderr == f"error: there is no file or folder {missing}\n"
    assert list(temporary.iterdir()) == []


def test_input_without_a_byte(tmp_path: Path, temporary: Path) -> None:
    empty = tmp_path / "nothing"
    empty.write_bytes(b"")
    done = bkbox("demo", "--input", str(empty), env=environment(temporary), check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: there is nothing to write in {empty}")
