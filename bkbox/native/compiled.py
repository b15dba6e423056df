"""True if this kernel is the compiled one: a compiled module has no source loader."""

from __future__ import annotations

COMPILED = not __file__.endswith(".py")
