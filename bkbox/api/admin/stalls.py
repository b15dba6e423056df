"""What a stalled process of a bookie does instead of making progress, where that decides what to do; part of the
status document. A module of its own: the supervisor needs these words at its start, and nothing else of the document.
"""

from __future__ import annotations

WAITS_FOR_DISK = "it waits for its disk"
STOPPED = "it is stopped"
