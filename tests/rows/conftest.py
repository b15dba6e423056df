"""What the tests of real bookies share."""

from tests.harness.fixtures import make_bookie

__all__ = ["make_bookie"]
