"""What the tests of a release share."""

from tests.host.installed import wheel

__all__ = ["wheel"]
