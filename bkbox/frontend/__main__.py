"""The front-end process; started by the supervisor."""

from __future__ import annotations

from bkbox.base import logs
from bkbox.frontend.server import Frontend
from bkbox.ipc.child import begin

if __name__ == "__main__":
    begun = begin("frontend")
    logs.begin("frontend", logs.LogSettings.from_text(begun.log))
    Frontend(begun.control).run()
