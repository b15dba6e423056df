"""Apache BookKeeper's own tests of its client, on bkbox bookies and a real ZooKeeper.

``classes.toml`` says which. Every Java test is a test here, in a JVM of its own, so that what fails has a name. A
sample is run by default; UPSTREAM_TESTS=all runs them all.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from tests.harness.java import require_java
from tests.upstream import jars

SCOPE = tomllib.loads((Path(__file__).parent / "classes.toml").read_text())
ALL = os.environ.get("UPSTREAM_TESTS") == "all"


def _chosen() -> list[str]:
    return [
        f"{each['name']}#{method}"
        for each in SCOPE["class"]
        for method in each["tests" if ALL else "sample"]
    ]


@pytest.fixture(scope="module", autouse=True)
def java_parts() -> None:
    require_java()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("test", _chosen())
def test_of_upstream(test: str, tmp_path: Path) -> None:
    results, logs = jars.run(tmp_path, [jars.selector(test)])
    failed = [result for result in results if result.failure is not None]
    if failed or not results:
        for name, text in logs.items():
            print(f"---- log of {name} ----\n{text}")
        pytest.fail("\n".join(f"{each.name}: {each.failure}" for each in failed) or "nothing ran")


def test_every_test_of_a_class_in_scope_is_listed() -> None:
    names = [each["name"] for each in SCOPE["class"]]
    found = jars.discover([jars.selector(name) for name in names])
    listed = {
        f"{each['name'].rpartition('.')[2]}.{test}"
        for each in SCOPE["class"]
        for test in [*each["tests"], *each.get("out", {})]
    }
    assert found == listed
