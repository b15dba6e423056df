"""What the tests of a bookie on its host share."""

from tests.harness.fixtures import make_bookie

__all__ = ["make_bookie"]
