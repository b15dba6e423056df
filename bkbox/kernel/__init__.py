"""The compiled kernel: all that runs once per frame or per entry.

Plain typed Python. Beside each module lies a ``.pxd`` with its C types, by which Cython compiles it where a compiler
is there; where none is, or with ``BKBOX_KERNEL=interpreted`` in the environment, the same source runs as it stands,
slower. The one exception is octets, whose loads, stores and checksum are C when compiled, and ``struct`` and a library
when not.

Buffers are not checked for bounds when compiled: every function checks lengths before it looks, and says in its
docstring what it expects of its caller.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader


def interpret_if_asked(folders: Iterable[str]) -> None:
    """Import the modules of a package from their sources, where ``BKBOX_KERNEL`` says ``interpreted``.

    ``folders``: the package's ``__path__``; its modules must not have been imported yet.
    """
    if os.environ.get("BKBOX_KERNEL") == "interpreted":
        for folder in folders:
            # Imports look into this cache first: from here on they see sources only.
            sys.path_importer_cache[folder] = FileFinder(
                folder, (SourceFileLoader, SOURCE_SUFFIXES)
            )


interpret_if_asked(__path__)


def kernel_in_use() -> str:
    """'compiled' or 'interpreted', for people."""
    from bkbox.kernel import probe  # which must be imported after the lines above

    return "compiled" if probe.COMPILED else "interpreted"
