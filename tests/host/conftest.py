"""What the tests of a bookie on its host share."""

from tests.host.installed import bin_folder, wheel

__all__ = ["bin_folder", "wheel"]
