"""The front-end process; started by the supervisor."""

from __future__ import annotations

from bkbox.frontend.server import Frontend
from bkbox.ipc.child import begin

if __name__ == "__main__":
    Frontend(begin("frontend")).run()
