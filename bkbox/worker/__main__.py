"""A disk worker process; started by the supervisor."""

from __future__ import annotations

from bkbox.base import logs
from bkbox.ipc.child import begin
from bkbox.worker.loop import Worker

if __name__ == "__main__":
    child = begin("worker")
    logs.begin(f"worker {child.name}", logs.LogSettings.from_text(child.log))
    Worker(child.control).run()
