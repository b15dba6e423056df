"""A stranger's evening with bkbox, on real processes of an installed wheel. ``python -m tests.host.evening`` does all
of it and puts the pictures of its screens into docs/pictures, for docs/operations.md.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bkbox_tui.recording import read_recording

from tests.harness.processes import free_port
from tests.harness.waiting import wait_for
from tests.host.buildcontext import ROOT
from tests.host.installed import build_wheel, install
from tests.host.managerlistener import Listener

PICTURES = ROOT / "docs" / "pictures"
_PACE = "jobs_metadata_calls_per_second"
_SCREEN = Path(__file__).with_name("eveningscreen.py")

SCREENS = {
    "evening-serving": ("1", ["yes: every disk is in service", "serving; no other work"]),
    "evening-refused": ("5", ["[X] the bookie will not start", "VERSION", "bkbox cookie repair"]),
    "evening-limbo": ("3", ["left of", "checked"]),
    "evening-whole": ("3", ["no ledger is in limbo"]),
    "evening-drained": ("4", ["drain", "done"]),
    "evening-events": ("7", ["no ledger is in limbo any more", "are in limbo"]),
}
"""By the picture's name: the keys to press, and what is on the screen then."""


LEDGERS = 60

WRITE = """
import asyncio, sys
from bkbox.client import connect

async def main():
    async with connect(sys.argv[1]) as client:
        for _ in range(int(sys.argv[2])):
            async with await client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2) as writer:
                await writer.append_many([b"line"] * 20)

asyncio.run(main())
"""


@dataclass
class Evening:
    """``bin``: where the installed commands are; ``pictures``: where the screens go."""

    bin: Path
    root: Path
    pictures: Path
    texts: dict[str, str] = field(default_factory=dict)

    @property
    def config(self) -> Path:
        return self.root / "bookie.toml"

    def bkbox(self, *words: str, code: int = 0, text: str | None = None) -> str:
        """Run a command to its end; what it printed, messages too."""
        done = subprocess.run(
            [str(self.bin / "bkbox"), *words],
            env={"PATH": str(self.bin), "HOME": str(self.root)},
            cwd=self.root,
            input=text,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def python(self, program: str, *words: str) -> None:
        """Run a program that uses bkbox as a library."""
        command = [str(self.bin / "python"), "-c", program, *words]
        subprocess.run(command, env={"PATH": str(self.bin)}, timeout=120, check=True)

    def init(self, name: str, disks: int, **settings: object) -> Path:
        config = self.root / f"{name}.toml"
        words = ["init", "--config", str(config), "--metadata", self.metadata]
        words += ["--listen", f"127.0.0.1:{free_port()}"]
        for number in range(disks):
            words += ["--disk", str(self.root / name / f"disk{number + 1}")]
        for key, value in settings.items():
            words += ["--set", f"{key}={value}"]
        self.bkbox(*words)
        return config

    @property
    def metadata(self) -> str:
        return f"sqlite:{self.root / 'cluster.db'}"

    @contextmanager
    def service(self, config: Path) -> Iterator[Service]:
        """The bookie as the unit starts it, under something that listens as systemd does."""
        unit = (ROOT / "systemd" / "bkbox.service").read_text()
        line = re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE)
        assert line is not None
        words = line[1].replace("/usr/bin/bkbox", str(self.bin / "bkbox"))
        command = shlex.split(words.replace("/etc/bkbox/bkbox.toml", str(config)))
        listener = Listener(Path(tempfile.mkdtemp(dir=self.root)) / "notify")
        with (config.with_suffix(".log")).open("a") as log:
            process = subprocess.Popen(
                command,
                env={"PATH": str(self.bin), **listener.environment()},
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        try:
            yield Service(process, listener)
        finally:
            process.kill()
            process.wait(30)
            listener.close()

    def screen(self, name: str, what: Path | None = None) -> str:
        """Look at a screen; its text."""
        keys, words = SCREENS[name]
        picture = self.pictures / f"{name}.svg"
        done = subprocess.run(
            [
                *(str(self.bin / "python"), str(_SCREEN), str(what or self.config)),
                *(keys, json.dumps(words), str(picture)),
            ],
            env={"PATH": str(self.bin), "HOME": str(self.root)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        self.texts[name] = done.stdout
        return done.stdout


@dataclass
class Service:
    process: subprocess.Popen[bytes]
    listener: Listener

    def ready(self) -> None:
        self.listener.wait("READY", timeout=60)

    def stop(self) -> None:
        self.process.terminate()
        assert self.process.wait(60) == 0
        self.listener.wait("STOPPING")


def spend(evening: Evening) -> None:
    """The whole evening. The steps are those of docs/operations.md."""
    # One small cluster: the bookie of this evening, and two to copy from.
    quick = {"repair_retry_initial_s": 0.2, "repair_retry_max_s": 0.5}
    others = [evening.init(name, 1, **quick) for name in ("second", "third")]
    slow = {
        "repair_ledgers_at_once": 1,
        _PACE: 2,
    }  # there is little to repair: so that it can be seen
    evening.init("bookie", 2, **slow, **quick)
    config = ("--config", str(evening.config))
    with ExitStack() as stack:
        for other in others:
            stack.enter_context(evening.service(other)).ready()

        # It serves.
        with evening.service(evening.config) as service:
            service.ready()
            shape = ("--metadata", evening.metadata, "-e", "3", "-w", "3", "-a", "2")
            evening.bkbox("ledger", "write", *shape, text="line\n" * 200)
            evening.python(WRITE, evening.metadata, str(LEDGERS))
            evening.screen("evening-serving")
            evening.bkbox("doctor", *config)
            service.stop()

        # A cookie breaks: the start refuses, and the screen says what to run.
        (evening.root / "bookie" / "disk2" / "VERSION").unlink()
        with evening.service(evening.config) as service:
            assert service.process.wait(60) == 4
            service.listener.wait("STATUS", "cookie mismatch")
        shown = evening.screen("evening-refused")
        command = re.search(
            r"bkbox (cookie repair --config \S+)", " ".join(shown.replace("│", " ").split())
        )
        assert command is not None, shown
        evening.bkbox(*command[1].split(), "--dry-run")
        evening.bkbox(*command[1].split(), "--yes")

        # It comes back: what may be missing is in limbo until the others have been asked.
        recording = evening.root / "evening.jsonl.gz"
        with evening.service(evening.config) as service:
            recorder = subprocess.Popen(
                [
                    *(str(evening.bin / "bkbox"), "tui", *config),
                    *("--record", str(recording), "--headless", "600"),
                ],
                env={"PATH": str(evening.bin), "HOME": str(evening.root)},
            )
            try:
                service.ready()
                _see_limbo(evening)
                evening.bkbox("health", *config, "--exit-when-healthy", "--timeout", "60s")
                evening.screen("evening-whole")

                # A disk is drained and let go.
                disk = str(evening.root / "bookie" / "disk1")
                evening.bkbox("disk", "drain", disk, *config)
                evening.bkbox("job", "watch", *config)
                wait_for(
                    lambda: "drained" in evening.bkbox("disk", "list", *config), "a drained disk"
                )
                evening.screen("evening-drained")
                evening.bkbox("disk", "remove", disk, *config)
            finally:
                recorder.terminate()
                recorder.wait(30)
            service.stop()
    counts = [s.status.limbo.ledgers for s in read_recording(recording) if s.status is not None]
    assert max(counts) > 0, counts
    assert counts[-1] == 0
    evening.screen("evening-events", recording)


def _see_limbo(evening: Evening) -> None:
    """Hold repair while it is looked at, and then let it go at full speed."""
    config = ("--config", str(evening.config))
    evening.bkbox("status", *config, "--timeout", "60")

    def running() -> list[int]:
        listed = json.loads(evening.bkbox("job", "list", *config, "-o", "json"))
        return [job["id"] for job in listed if job["kind"] == "limbo" and job["ended_ms"] is None]

    (job,) = wait_for(running, "the job that repairs")
    evening.bkbox("job", "pause", str(job), *config)
    evening.screen("evening-limbo")
    text = evening.config.read_text()
    evening.config.write_text(text.replace(f"{_PACE} = 2\n", f"{_PACE} = 1000\n"))
    evening.bkbox("config", "reload", *config)
    evening.bkbox("job", "resume", str(job), *config)


def main() -> None:
    root = Path("/tmp/bkbox-evening")  # which is in the pictures
    root.mkdir()
    try:
        bin_folder = install(f"{build_wheel(root)}[tui]", root / "venv")
        PICTURES.mkdir(exist_ok=True)
        spend(Evening(bin_folder, root, PICTURES))
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
