"""Fixtures of all tests, and the line that pytest prints at the beginning of a run."""

from hypothesis import settings

from tests.harness.fixtures import make_bookie
from tests.harness.mounts import make_mount
from tests.harness.seeds import seed_of_the_commit
from tests.harness.zookeeper import zookeeper

__all__ = ["make_bookie", "make_mount", "zookeeper"]

# How long an example takes says how busy the machine is, and nothing else.
settings.register_profile("bkbox", deadline=None)
settings.load_profile("bkbox")


def pytest_report_header() -> str:
    return f"simulated clusters: seeds from {seed_of_the_commit()} on (SIM_SEED)"
