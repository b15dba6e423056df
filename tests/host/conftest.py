"""What the tests of a bookie on its host share."""

from tests.harness.fixtures import make_bookie
from tests.host.installed import bin_folder, wheel

__all__ = ["bin_folder", "make_bookie", "wheel"]
