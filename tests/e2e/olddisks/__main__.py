"""``python -m tests.e2e.olddisks``: write the disks of this version."""

from __future__ import annotations

import tarfile
import tempfile
from pathlib import Path

from bkbox import __version__
from tests.e2e.olddisks import BOOKIE_ID, FOLDER
from tests.harness.processes import BookieProcess, bkbox
from tests.harness.two_ledgers import fill

_LEFT_OUT = {"RESERVE", "LOCK", "admin.sock", "LOG", "LOG.old"}
"""Made anew by each start."""


def main() -> None:
    for mode, end in (("write", "stopped"), ("journal", "killed")):
        archive = FOLDER / f"{__version__}-{mode}-{end}.tar.xz"
        with tempfile.TemporaryDirectory() as folder:
            _written(Path(folder), mode, end)
            with tarfile.open(archive, "w:xz") as packed:
                for each in sorted((Path(folder) / "bookie").iterdir()):
                    if each.name != "bookie.toml":
                        packed.add(each, each.name, filter=_only_stored)
        print(archive.relative_to(Path.cwd()), archive.stat().st_size, "bytes")


def _only_stored(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    return None if Path(info.name).name in _LEFT_OUT else info


def _written(root: Path, mode: str, end: str) -> None:
    uri = f"sqlite:{root / 'bookie' / 'metadata.db'}"
    bookie = BookieProcess(root, uri)
    bookie.init(
        journal=mode == "journal",
        ack_after=mode,
        bookie_id=BOOKIE_ID,
        disk_reserve_bytes=0,
    )
    try:
        bookie.start()
        fill(bookie, BOOKIE_ID)
        if end == "stopped":
            assert bookie.stop() == 0
        else:
            bookie.kill()
            bkbox("cluster", "info", "--metadata", uri)  # a reader alone leaves no write-ahead log
    finally:
        bookie.ensure_gone()


if __name__ == "__main__":
    main()
