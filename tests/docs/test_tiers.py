"""The table of tiers has every tier, and a test is of one tier by its path, its imports or its marker."""

from __future__ import annotations

import pytest

from tests.docs.tiers import PAGE, first_cells
from tests.harness.tiers import PATHS, TESTS, TIERS, scope_of, tier_of, tier_of_path


def test_each_tier_has_a_row() -> None:
    page = PAGE.read_text()
    assert [tier for tier in TIERS if first_cells(tier) not in page] == [], (
        "python -m tests.docs.tiers"
    )


def test_each_path_exists() -> None:
    assert [path for path in PATHS if not (TESTS / path).exists()] == []


def test_the_longest_path_decides() -> None:
    assert tier_of_path("crash/test_kill.py") == "process"
    assert tier_of_path("crash/points/test_points.py") == "slow"
    assert tier_of_path("wire/test_wire_v2.py") is None


def test_tests_that_share_a_jvm_a_session_or_a_wheel_are_of_one_scope() -> None:
    assert scope_of("tests/interop/test_same_results.py::test_x[a]") == "interop"
    assert scope_of("tests/interop/test_odd_clusters.py::test_x") == "interop/test_odd_clusters.py"
    assert scope_of("tests/spark/test_spark_read.py::test_x") == "spark"
    assert scope_of("tests/spark/test_spark_faults.py::test_x") == "spark"
    assert scope_of("tests/host/test_wheel.py::test_x") == "host"
    assert scope_of("tests/host/test_notify.py::test_x") == "host/test_notify.py"
    assert scope_of("tests/crash/points/test_points.py::test_x[a]").endswith("::test_x[a]")
    assert scope_of("tests/e2e/test_boot.py::test_x") == "e2e/test_boot.py"


def test_this_one_is_pure(request: pytest.FixtureRequest) -> None:
    assert tier_of(request.node) == "unit"


@pytest.mark.process
def test_its_own_marker_comes_first(request: pytest.FixtureRequest) -> None:
    assert tier_of(request.node) == "process"
