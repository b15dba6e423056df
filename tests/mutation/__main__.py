"""``python -m tests.mutation [MODULE…]``: which mutants of the protocol its unit tests kill, and which survive.

Each mutant has a process of its own, forked from one that has imported pytest and what it wants, but nothing of bkbox.
In it the wrong module is imported in the place of the right one, and the tests run until the first that fails. A
mutant that never ends is killed by the processor time that it takes. Exits 1 where fewer than ``--least`` percent are
killed. The survivors that are listed in SAME change nothing that anybody could see; they are not counted.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib.util
import io
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from tests.mutation.mutants import Mutant, mutants
from tests.mutation.same import SAME

MODULES = ("quorum", "recovery", "writer", "boot", "repair", "unacked_positions")
FOLDER = Path("bkbox", "protocol")
FIRST = {
    "quorum": ["test_quorum.py"],
    "recovery": ["test_recovery_machine.py", "test_late_answers.py", "test_scenarios.py"],
    "writer": [
        "test_writer_machine.py",
        "test_writer_runs.py",
        "test_force.py",
        "test_late_answers.py",
        "test_scenarios.py",
    ],
    "boot": ["test_boot_planning.py"],
    "repair": ["test_repair_planning.py"],
    "unacked_positions": ["test_unacked_positions.py"],
}
"""The tests that are about a module."""
FOLLOWING = [
    "test_force.py",
    "test_force_random.py",
    "test_writer_runs.py",
    "test_random_network.py",
]
"""Those of all machines together, which come after them."""

TESTS = Path("tests", "protocol")
CPU_S = 200
"""Processor time of all tests of a mutant, some times what those of the right module take; and of its own tests."""
OWN_CPU_S = 40


class _Loader(SourceFileLoader):
    """Loads the wrong version of a module."""

    def __init__(self, name: str, path: str, tree: ast.Module) -> None:
        super().__init__(name, path)
        self._tree = tree

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._tree, self.path, "exec")


class _Finder:
    """Finds it."""

    def __init__(self, name: str, path: Path, tree: ast.Module) -> None:
        self._name, self._path, self._tree = name, path, tree

    def find_spec(
        self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._name:
            return None
        loader = _Loader(name, str(self._path.resolve()), self._tree)
        return importlib.util.spec_from_file_location(name, self._path.resolve(), loader=loader)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("modules", nargs="*", default=MODULES, metavar="MODULE")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--sample", type=int, help="only so many mutants of each module")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--line", type=int, help="only the mutants of this line")
    parser.add_argument(
        "--own", action="store_true", help="only the tests that are about the module"
    )
    parser.add_argument("--least", type=int, default=0, metavar="PERCENT")
    chosen = parser.parse_args()
    following = [] if chosen.own else FOLLOWING
    import hypothesis  # noqa: F401 - before the first fork
    import pytest  # noqa: F401

    killed = total = 0
    print("| module | mutants | killed | the same | survived |")
    print("| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(prefix="bkbox-mutation-") as folder:
        sys.pycache_prefix, sys.dont_write_bytecode = folder, False
        for module in chosen.modules:
            if not _passes(module, following):
                print(f"the tests fail on {module} as it is", file=sys.stderr)
                return 1
            made = _chosen(module, chosen)
            alive = _run_all(module, made, following, chosen.jobs)
            left = [mutant for mutant in alive if (module, mutant.what) not in SAME]
            dead, same = len(made) - len(alive), len(alive) - len(left)
            killed, total = killed + dead, total + len(made) - same
            print("|", " | ".join(map(str, (module, len(made), dead, same, len(left)))), "|")
            for mutant in left:
                print(f"    {module}.py:{mutant.line}: {mutant.what}", flush=True)
    share = 100 * killed / total if total else 100.0
    print(f"{killed} of {total} killed: {share:.1f} %")
    return int(share < chosen.least)


def _chosen(module: str, chosen: argparse.Namespace) -> list[Mutant]:
    """The mutants of a module that were asked for."""
    made = list(mutants((FOLDER / f"{module}.py").read_text(encoding="utf-8")))
    if chosen.line is not None:
        made = [mutant for mutant in made if mutant.line == chosen.line]
    if chosen.sample is not None:
        made = random.Random(chosen.seed).sample(made, min(chosen.sample, len(made)))
    return made


def _run_all(module: str, made: list[Mutant], following: list[str], jobs: int) -> list[Mutant]:
    """Those that survive."""
    waiting, running, alive = made[::-1], dict[int, Mutant](), []
    while waiting or running:
        while waiting and len(running) < jobs:
            mutant = waiting.pop()
            running[_start(module, mutant, following)] = mutant
        pid, status = os.wait()
        mutant = running.pop(pid)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
            alive.append(mutant)
    return sorted(alive, key=lambda mutant: mutant.line)


def _passes(module: str, following: list[str]) -> bool:
    _pid, status = os.waitpid(_start(module, None, following), 0)
    return status == 0


def _start(module: str, mutant: Mutant | None, following: list[str]) -> int:
    """Run the tests in a process of its own, which ends with 0 if all of them pass."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        cpu_s = CPU_S if following else OWN_CPU_S
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
        status = _test(module, mutant, following)
    finally:
        os._exit(status)


def _test(module: str, mutant: Mutant | None, following: list[str]) -> int:
    import pytest

    if mutant is not None:
        name = f"bkbox.protocol.{module}"
        sys.meta_path.insert(0, _Finder(name, FOLDER / f"{module}.py", mutant.tree))  # type: ignore[arg-type]
    files = [str(TESTS / each) for each in dict.fromkeys([*FIRST[module], *following])]
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-seed=1"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return int(pytest.main([*options, *files]))


if __name__ == "__main__":
    started = time.monotonic()
    code = main()
    print(f"{time.monotonic() - started:.0f} s")
    sys.exit(code)
