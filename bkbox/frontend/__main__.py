"""The front-end process; started by the supervisor."""

from __future__ import annotations

import asyncio

from bkbox.frontend.server import Frontend
from bkbox.ipc.child import begin


async def serve() -> None:
    await Frontend().run(begin("frontend").control)


if __name__ == "__main__":
    try:
        import uvloop
    except ImportError:
        asyncio.run(serve())
    else:
        uvloop.run(serve())
