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
import bkbox.kernel
from bkbox.errors import BkboxError

_PACKAGE = "bkbox.kernel"
_NAMES = (
    "adds", "ahead", "answers", "batches", "checksum", "clientanswers", "clientframes",
    "clientreads", "fetch", "logscan", "octets", "probe", "reads", "recent", "routes", "runs",
    "stream", "tally", "turns", "v3plain", "walk",
)  # fmt: skip
_VARIABLE = "BKBOX_KERNEL"


def _imported() -> SimpleNamespace:
    modules = {name: importlib.import_module(f"{_PACKAGE}.{name}") for name in _NAMES}
    return SimpleNamespace(**modules, compiled=modules["probe"].COMPILED)


@contextmanager
def _set_aside() -> Iterator[None]:
    """The kernel as if it had never been imported, to be imported interpreted; afterwards all is as it was."""
    folder = str(Path(bkbox.kernel.__file__).parent)
    before = {name: module for name, module in sys.modules.items() if _is_kernel(name)}
    finder, variable = sys.path_importer_cache.get(folder), os.environ.get(_VARIABLE)
    for name in before:
        del sys.modules[name]
    os.environ[_VARIABLE] = "interpreted"
    try:
        yield
    finally:
        for name in [name for name in sys.modules if _is_kernel(name)]:
            del sys.modules[name]
        sys.modules.update(before)
        bkbox.kernel = before[_PACKAGE]  # type: ignore[assignment]
        sys.path_importer_cache[folder] = finder
        if variable is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = variable


def _is_kernel(name: str) -> bool:
    return name == _PACKAGE or name.startswith(_PACKAGE + ".")


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
