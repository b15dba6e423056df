"""The tools that prove bkbox: model, simulator and chaos, and the properties that they share.

They are part of a checkout and of no wheel: ``proof`` imports ``bkbox``, never the other way round.
"""

from __future__ import annotations

import os.path

from bkbox.native import interpret_if_requested

interpret_if_requested(os.path.dirname(__file__))
