"""No file of bkbox, proof, the TUI or the Spark package imports itself by way of others, and bkbox does not need proof.

import-linter looks at packages and at what is imported when a module is loaded. Here every import counts: those inside
functions and those for types only. An import of a name from a package counts as one of the package, unless the name is
a module of it.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
ROOTS = ("bkbox", "proof", "tui/bkbox_tui", "spark/pyspark_bookkeeper")


@cache
def modules() -> dict[str, Path]:
    """All files, by the names of their modules."""
    found = {}
    for root in ROOTS:
        folder = CHECKOUT / root
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder.parent).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(module: str, tree: ast.AST, known: Mapping[str, object]) -> Iterator[str]:
    """What of ``known`` a module imports anywhere."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in known else str(node.module) for name in names]
        else:
            continue
        yield from (name for name in names if name in known and name != module)


def assert_no_circle(graph: Mapping[str, set[str]]) -> None:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"files import one another: {' -> '.join(reversed(error.args[1]))}")


def test_no_file_imports_itself_by_way_of_others() -> None:
    graph = {
        module: set(imported(module, ast.parse(path.read_text()), modules()))
        for module, path in modules().items()
    }
    assert len(graph) > 500
    assert_no_circle(graph)


def test_a_circle_by_an_import_inside_a_function_and_one_for_types_is_found() -> None:
    known = {"a": None, "a.b": None, "a.c": None}
    inside = ast.parse("def f():\n    from a import c\n")
    for_types = ast.parse("if TYPE_CHECKING:\n    from a.b import B\n")
    graph = {
        "a.b": set(imported("a.b", inside, known)),
        "a.c": set(imported("a.c", for_types, known)),
    }
    assert graph == {"a.b": {"a.c"}, "a.c": {"a.b"}}
    with pytest.raises(pytest.fail.Exception, match=r"a\.[bc] -> a\.[bc]"):
        assert_no_circle(graph)


def test_no_file_of_bkbox_imports_proof() -> None:
    """``bkbox.cli.main`` names the commands of proof, and imports one when it is called in a checkout."""
    proof = dict.fromkeys(name for name in modules() if name.partition(".")[0] == "proof")
    for module, path in modules().items():
        if module.partition(".")[0] == "bkbox":
            found = list(imported(module, ast.parse(path.read_text()), proof))
            assert not found, f"{module} imports {', '.join(found)}"


def test_all_of_bkbox_is_loaded_without_proof() -> None:
    names = [name for name in modules() if name.startswith("bkbox") and "__main__" not in name]
    script = "import importlib, sys\nsys.modules['proof'] = None\n"
    script += "for name in sys.argv[1:]: importlib.import_module(name)\n"
    done = subprocess.run(
        [sys.executable, "-c", script, *names],
        cwd=CHECKOUT,
        env={**os.environ, "PYTHONPATH": "tui"},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
