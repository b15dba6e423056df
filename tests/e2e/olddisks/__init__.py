"""Disks that versions of bkbox wrote, kept as they left them: `<version>-<mode>-<end>.tar.xz`.

``python -m tests.e2e.olddisks`` adds those of the present version: once, with a release. No archive is changed later.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

from tests.harness.processes import BookieProcess, free_port

FOLDER = Path(__file__).parent
BOOKIE_ID = "old-bookie"


def unpacked(archive: Path, root: Path) -> BookieProcess:
    """The bookie of an archive, moved to ``root``: its cookies still name the folders where it was."""
    mode = archive.name.split("-")[1]
    bookie = BookieProcess(root, f"sqlite:{root / 'bookie' / 'metadata.db'}", port=free_port())
    with tarfile.open(archive) as packed:
        # Not as an argument: Debian 12's Python, 3.11.2, has none for it, and Python 3.12 warns without any filter.
        packed.extraction_filter = getattr(tarfile, "data_filter", None)
        packed.extractall(bookie.root)
    folders = {"disks": [str(disk) for disk in bookie.disks], "journal": ""}
    if mode == "journal":
        folders["journal"] = str(bookie.root / "journal")
    lines = [
        f'listen = "127.0.0.1:{bookie.port}"',
        f'bookie_id = "{BOOKIE_ID}"',
        f'metadata = "{bookie.metadata}"',
        f'ack_after = "{mode}"',
        *(f"{key} = {value!r}" for key, value in folders.items()),
    ]
    bookie.config.write_text("\n".join(lines) + "\n")
    bookie.config.chmod(0o600)
    return bookie
