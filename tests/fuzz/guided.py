"""``python -m tests.fuzz.guided TARGET [option of libFuzzer | folder]…``: inputs guided by coverage, with atheris.

What is instrumented is bkbox as it runs interpreted; the compiled kernel is asked the same beside it by the targets
themselves. Ends the process, as libFuzzer does: 0, or something else after the first finding.
"""

from __future__ import annotations

import gc
import sys
from types import FunctionType

import atheris

from tests.fuzz.targets import TARGETS


def instrument() -> int:
    """Have every function of bkbox say where it goes; how many there are."""
    functions = [
        each
        for each in gc.get_objects()
        if isinstance(each, FunctionType) and str(each.__module__).startswith("bkbox.")
    ]
    for function in functions:
        atheris.instrument_func(function)
    return len(functions)


def main() -> None:
    check = TARGETS[sys.argv[1]].check

    def one(data: bytes) -> None:
        check(data)

    instrument()
    atheris.Setup([sys.argv[0], *sys.argv[2:]], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
