"""Apache BookKeeper's own tests of its client, on bkbox bookies and a real ZooKeeper.

``classes.toml`` says which. Every Java test is a test here, in a JVM of its own, so that what fails has a name. The
tier ``java`` runs a sample, the tier ``slow`` a larger one; UPSTREAM_TESTS=all runs them all.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.harness.java import VERSION, require_java
from tests.upstream import jars, report
from tests.upstream.scope import CLASSES, listed

ALL = os.environ.get("UPSTREAM_TESTS") == "all"
QUICK = {"test.CloseTest#testClose", "client.TestReadLastEntry#testTryReadLastEntrySync"}


def _chosen() -> list[object]:
    names = [
        f"{each.name}#{method}"
        for each in CLASSES
        for method in (each.tests if ALL else each.sample)
    ]
    return [
        pytest.param(name, marks=pytest.mark.java if name in QUICK else pytest.mark.slow)
        for name in names
    ]


@pytest.fixture(scope="module")
def java_parts() -> None:
    require_java()


@pytest.mark.usefixtures("java_parts")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("test", _chosen())
def test_of_upstream(test: str, tmp_path: Path) -> None:
    results, logs = jars.run(tmp_path, [jars.selector(test)])
    failed = [result for result in results if result.failure is not None]
    if failed or not results:
        for name, text in logs.items():
            print(f"---- log of {name} ----\n{text}")
        pytest.fail("\n".join(f"{each.name}: {each.failure}" for each in failed) or "nothing ran")


@pytest.mark.java
@pytest.mark.usefixtures("java_parts")
@pytest.mark.skipif(VERSION != "4.18.0", reason="classes.toml is that of the default version")
def test_every_test_of_a_class_in_scope_is_listed() -> None:
    found = jars.discover([jars.selector(each.name) for each in CLASSES])
    listed = {f"{each.simple_name}.{test}" for each in CLASSES for test in [*each.tests, *each.out]}
    assert found == listed


@pytest.mark.java
@pytest.mark.usefixtures("java_parts")
@pytest.mark.skipif(VERSION != "4.18.0", reason="classes.toml is that of the default version")
def test_no_class_is_forgotten() -> None:
    names = listed()
    assert len(names) == len(set(names))
    assert set(jars.classes_of_clusters()) - set(names) == set()


@pytest.mark.unit
def test_the_page_is_what_the_program_writes() -> None:
    assert report.tables(report.read()) in report.PAGE.read_text(), (
        "python -m tests.upstream --report"
    )
