"""What the harness changes, what it leaves alone, and that a wrong line is noticed."""

from __future__ import annotations

import ast
import subprocess
import sys

from tests.mutation.mutants import mutants

SOURCE = '''
"""A module."""
Kind = int | str
LIMIT: int = 5

def first(values, bound):
    """A function."""
    found = [value for value in values if value < bound and value]
    if not found:
        raise ValueError("none")
    found.sort()
    return min(found) + 1
'''

EXPECTED = [
    "LIMIT: int = 5  ->  LIMIT: int = 6",
    "found = [value for value in values if value < bound and value]  is left out",
    "value < bound  ->  value <= bound",
    "value < bound  ->  value >= bound",
    "value < bound and value  ->  value < bound or value",
    "not found  ->  found",
    "found.sort()  is left out",
    "min(found) + 1  ->  min(found) - 1",
    "min(found)  ->  max(found)",
    "min(found) + 1  ->  min(found) + 2",
]


def test_the_mutants_of_a_module() -> None:
    made = list(mutants(SOURCE))
    said = [mutant.what for mutant in made]
    assert set(EXPECTED) <= set(said)
    assert not any("Kind" in what or "raise" in what for what in said)
    for mutant in made:
        compile(mutant.tree, "mutant", "exec")
        assert ast.dump(mutant.tree) != ast.dump(ast.parse(SOURCE))
    assert len(set(map(ast.dump, (mutant.tree for mutant in made)))) == len(made)


def test_a_wrong_line_is_noticed() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.mutation",
            "quorum",
            "--own",
            "--sample",
            "2",
            "--least",
            "50",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert "of 2 killed" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0
