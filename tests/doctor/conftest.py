"""What the tests of the doctor share."""

from tests.harness.fixtures import make_bookie
from tests.harness.mounts import make_mount

__all__ = ["make_bookie", "make_mount"]
