"""The front-end process; started by the supervisor."""

from __future__ import annotations

from bkbox.base import logs
from bkbox.frontend.server import Frontend
from bkbox.ipc.child import begin

if __name__ == "__main__":
    child = begin("frontend")
    logs.begin("frontend", logs.LogSettings.from_text(child.log))
    Frontend(child.control).run()
