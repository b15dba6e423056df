"""What the interop tests share: one ZooKeeper and one JVM with clients for all modules, and the logs
of a cluster's parts beside the failure of a test that used it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.harness.java import require_java
from tests.harness.zookeeper import ZooKeeper
from tests.interop.interopcluster import InteropCluster
from tests.interop.javaclient import Driver

MakeCluster = Callable[..., InteropCluster]

_NUMBERS = itertools.count()


@pytest.fixture(scope="session", autouse=True)
def java_parts() -> None:
    require_java()


@pytest.fixture(scope="session")
def interop_root(java_parts: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("interop")


@pytest.fixture(scope="session")
def driver(interop_root: Path) -> Iterator[Driver]:
    driver = Driver(interop_root).start()
    yield driver
    driver.kill()


@pytest.fixture(scope="module")
def make_cluster(interop_root: Path, zookeeper: ZooKeeper, driver: Driver) -> Iterator[MakeCluster]:
    """make_cluster(name, java=, bkbox=): running; gone when the module ends. (A test process may come back to a module
    that it has left, and then makes another cluster of the same name.)"""
    with ExitStack() as stack:

        def make(
            name: str, layout: str = "hierarchical", uri: str | None = None, **bookies: Any
        ) -> InteropCluster:
            unique = f"{name}-{next(_NUMBERS)}"
            cluster = InteropCluster(interop_root, zookeeper, driver, unique, layout, uri)
            stack.callback(cluster.close)
            return cluster.start(**bookies)

        yield make


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sizes that bkbox's client warns of are tried all the same."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.filterwarnings("ignore:ack quorum 1:UserWarning"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for value in getattr(item, "funcargs", {}).values():
            if isinstance(value, InteropCluster):
                for name, text in value.logs().items():
                    report.sections.append((f"log of {name}", text))
    return report
