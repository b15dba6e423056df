"""Runs a whole bookie, asks it for something, and stops it in order:

    python -m tests.crash.points.wholebookie CONFIG NOTES


The bookie's processes are watched as this one is; what it acknowledges is noted after it has come over the wire.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

from tests.crash.points.promises import payload
from tests.harness.processes import BKBOX
from tests.harness.raw import EOK, RawClient


def main(config: str, notes: str) -> None:
    def note(*words: object) -> None:
        os.write(int(notes), json.dumps(words).encode() + b"\n")

    environment = {name: text for name, text in os.environ.items() if name != "POINTS_NOTES"}
    note("try", "begin")
    bookie = subprocess.Popen(
        [*BKBOX, "run", "--config", config], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert bookie.stdout is not None
    ready, _, address = bookie.stdout.readline().strip().partition(" ")
    assert ready == "ready"
    note("ack", "begin")
    with RawClient(int(address.rpartition(":")[2])) as client:
        for ledger, entry in ((1, 3), (5, 0), (6, 0), (1, 4)):
            note("try", "add", ledger, entry)
            assert client.add(ledger, entry, payload(ledger, entry)) == EOK
            note("ack", "add", ledger, entry)
        note("try", "fence", 5)
        client.fence(5)
        note("ack", "fence", 5)
    note("try", "stop")
    bookie.send_signal(signal.SIGTERM)
    assert bookie.wait(30) == 0
    note("ack", "stop")


if __name__ == "__main__":
    main(*sys.argv[1:])
