"""A bkbox command that must not outlive its parent: ``python -m bkbox.launcher PARENT ARGUMENTS…``.

Binding and command are one process: the bookie needs no second start of an interpreter, and its parent may have
threads, which ``preexec_fn`` does not allow for.
"""

from __future__ import annotations

import runpy
import sys

from bkbox.base.host.prctl import die_with_parent

if __name__ == "__main__":
    die_with_parent(int(sys.argv.pop(1)), "the launcher")
    runpy.run_module("bkbox.cli.main", run_name="__main__", alter_sys=True)
