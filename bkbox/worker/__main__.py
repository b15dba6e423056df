"""A disk worker process; started by the supervisor."""

from __future__ import annotations

import logging

from bkbox.ipc.child import begin
from bkbox.worker.loop import Worker

if __name__ == "__main__":
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s worker %(message)s"
    )
    Worker(begin("worker")).run()
