"""Carries out the steps of one scenario, to be crashed:

    python -m tests.crash.points.child NAME MODE ROOT NOTES FAULT BOOT RECORD

NOTES is the descriptor for the lines of promises.py, FAULT that of a Miniature or "none", BOOT the id of the kernel's
boot, RECORD what the metadata store has of the disks.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from bkbox.storage.log.records import AckAfter
from tests.crash.points.scenarios import SCENARIOS, miniature


def main(name: str, mode: str, root: str, notes: str, fault: str, boot_id: str, disks: str) -> None:
    def note(*words: object) -> None:
        os.write(int(notes), json.dumps(words).encode() + b"\n")

    scenario = SCENARIOS[name]
    bookie = miniature(scenario, Path(root), AckAfter(mode), note)
    bookie.boot_id = boot_id
    bookie.fault = fault
    bookie.metadata.recall(disks)
    scenario.act(bookie)
    os._exit(0)  # as it is: what a scenario leaves open has to survive the kill


if __name__ == "__main__":
    main(*sys.argv[1:])
