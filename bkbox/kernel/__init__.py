"""The compiled kernel: all that runs once per frame or per entry, or per state of a search.

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
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader

if os.environ.get("BKBOX_KERNEL") == "interpreted":
    for _folder in __path__:
        # Imports in this package look into this cache first: from here on they see sources only.
        sys.path_importer_cache[_folder] = FileFinder(_folder, (SourceFileLoader, SOURCE_SUFFIXES))


def kernel_in_use() -> str:
    """'compiled' or 'interpreted', for people."""
    from bkbox.kernel import probe  # which must be imported after the lines above

    return "compiled" if probe.COMPILED else "interpreted"
