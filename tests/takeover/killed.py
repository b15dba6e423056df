"""A conversion that kills itself before a step: ``python -m tests.takeover.killed CONF TOML DIRECTION STEP``."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from uuid import uuid4

from bkbox.config.java_properties import parse
from bkbox.config.load import load
from bkbox.metadata import connect
from bkbox.storage.disk.conversion import Direction
from bkbox.storage.files import RealFiles
from bkbox.takeover.handback import Handback
from bkbox.takeover.java_bookie import java_bookie
from bkbox.takeover.plan import read_cluster
from bkbox.takeover.takeover import Takeover


class Deadly:
    """An observer that kills its process before the ``at``-th step, counted from 0."""

    def __init__(self, at: int) -> None:
        self._left = at

    def step(self, name: str) -> None:
        if self._left == 0:
            print(name, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1

    def stage(self, name: str, total_bytes: int) -> None: ...

    def advance(self, count: int) -> None: ...


async def convert(conf: Path, toml: Path, direction: Direction, at: int) -> None:
    java = java_bookie(parse(conf.read_text(), str(conf)), str(conf))
    config = load(toml, {})
    files, observer = RealFiles(), Deadly(at)

    def now_ms() -> int:
        return time.time_ns() // 1_000_000

    async with await connect(config.metadata) as store:
        cluster = await read_cluster(store, config.bookie_id, java.port)
        if direction is Direction.TAKEOVER:
            takeover = Takeover(
                java, config, files, cluster, observer, now_ms=now_ms, new_uuid=uuid4
            )
            with takeover.locked():
                takeover.convert()
                await takeover.finish(store)
            return
        handback = Handback(java, config, files, cluster, observer, now_ms=now_ms)
        begun = await handback.check(store)
        with handback.locked():
            handback.convert(begun)
            await handback.finish(store)


def killed(conf: Path, toml: Path, direction: Direction, at: int) -> str:
    """The step before which a process of its own was killed; empty if it has done all of it."""
    done = subprocess.run(
        [sys.executable, "-m", __name__, str(conf), str(toml), direction, str(at)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.stdout.strip()


if __name__ == "__main__":
    asyncio.run(
        convert(Path(sys.argv[1]), Path(sys.argv[2]), Direction(sys.argv[3]), int(sys.argv[4]))
    )
