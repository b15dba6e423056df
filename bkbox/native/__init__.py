"""The base of the compiled modules: memory access, checksum, histogram, and whether they are compiled.

A compiled module is plain typed Python, wherever it lies; the ``.pxd`` beside it has its C types, by which Cython
compiles it where a C compiler is present. All of them together are the *kernel*: code that runs once per frame or per
entry. Without a compiler, or with ``BKBOX_KERNEL=interpreted`` in the environment, the same source runs interpreted,
slower. The one exception is memory.py, whose loads, stores and checksum are C when compiled, and ``struct`` and a
library when not.

Buffers are not checked for bounds when compiled: every function checks lengths before it reads, and its docstring says
what it expects of its caller.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader


def interpret_if_requested(folder: str) -> None:
    """Import all modules below a folder from their sources if ``BKBOX_KERNEL`` is ``interpreted``.

    Called before any package below the folder is imported.
    """
    if os.environ.get("BKBOX_KERNEL") != "interpreted":
        return

    def finder(path: str) -> FileFinder:
        if not f"{path}{os.sep}".startswith(f"{folder}{os.sep}"):
            raise ImportError(f"{path} is not below {folder}")
        return FileFinder(path, (SourceFileLoader, SOURCE_SUFFIXES))

    sys.path_hooks.insert(0, finder)
    for path in [path for path in sys.path_importer_cache if path.startswith(f"{folder}{os.sep}")]:
        del sys.path_importer_cache[path]


def kernel_in_use() -> str:
    """'compiled' or 'interpreted', for people."""
    from bkbox.native import compiled  # after ``interpret_if_requested``

    return "compiled" if compiled.COMPILED else "interpreted"
