"""Fixtures for all tests. Those that are made once per test process have to be known in one place."""

from tests.harness.zookeeper import zookeeper

__all__ = ["zookeeper"]
