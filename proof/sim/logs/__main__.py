"""``python -m proof.sim.logs``."""

from __future__ import annotations

import logging
import sys

from proof.sim.logs.simulation import main

logging.getLogger("bkbox").setLevel(logging.CRITICAL + 1)  # writers' warnings are expected here
sys.exit(main())
