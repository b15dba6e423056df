"""What the tests of the doctor share."""

from tests.harness.fixtures import make_bookie

__all__ = ["make_bookie"]
