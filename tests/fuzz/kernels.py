"""The compiled kernel and the interpreted one beside each other in one process, to be asked the same things.

They are the same source: a difference is an overflow, a sign or a bound that C and Python see differently.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import bkbox
from bkbox.errors import BkboxError
from bkbox.native import interpret_if_requested

_FOLDER = Path(bkbox.__file__).parent
_MODULES = {
    path.stem: ".".join(("bkbox", *path.relative_to(_FOLDER).with_suffix("").parts))
    for path in sorted(_FOLDER.rglob("*.pxd"))
}
_VARIABLE = "BKBOX_KERNEL"


def _imported() -> SimpleNamespace:
    modules = {name: importlib.import_module(module) for name, module in _MODULES.items()}
    return SimpleNamespace(**{**modules, "compiled": modules["compiled"].COMPILED})


@contextmanager
def _set_aside() -> Iterator[None]:
    """The compiled modules as if they had never been imported, to be imported interpreted; restored afterwards."""
    before = {module: sys.modules.pop(module) for module in _MODULES.values()}
    for name in before:
        package, _, base = name.rpartition(".")
        delattr(sys.modules[package], base)
    hooks, variable = sys.path_hooks[:], os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = "interpreted"
    interpret_if_requested(str(_FOLDER))
    try:
        yield
    finally:
        sys.path_hooks[:] = hooks
        for folder in [each for each in sys.path_importer_cache if each.startswith(str(_FOLDER))]:
            del sys.path_importer_cache[folder]
        sys.modules.update(before)
        for name, module in before.items():
            package, _, base = name.rpartition(".")
            setattr(sys.modules[package], base, module)
        if variable is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = variable


IN_USE = _imported()
"""The kernel that bkbox runs with in this process."""

with _set_aside():
    INTERPRETED = _imported()

KERNELS = (INTERPRETED, IN_USE) if IN_USE.compiled else (INTERPRETED,)


def alike(ask: Callable[[SimpleNamespace], object]) -> object:
    """What each kernel answers, plain values, an error of bkbox included: has to be the same."""
    answers = [_answer(ask, kernel) for kernel in KERNELS]
    assert answers[0] == answers[-1], f"interpreted {answers[0]!r}, compiled {answers[-1]!r}"
    return answers[0]


def _answer(ask: Callable[[SimpleNamespace], object], kernel: SimpleNamespace) -> object:
    try:
        return ask(kernel)
    except BkboxError as error:
        return type(error), str(error)
