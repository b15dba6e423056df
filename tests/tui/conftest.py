"""Fixtures: real bookies."""

from tests.harness.fixtures import make_bookie

__all__ = ["make_bookie"]
