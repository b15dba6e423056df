"""``python -m tests.vectors FILE …``: see check.py."""

from __future__ import annotations

import sys

from tests.vectors.check import main

sys.exit(main(sys.argv[1:]))
