"""Fixtures for all tests. Those that are made once per test process have to be known in one place. So has what is said
at the beginning of a run: what a process of several prints while a test goes well is not seen.
"""

from hypothesis import settings

from tests.harness.seeds import seed_of_the_commit
from tests.harness.zookeeper import zookeeper

__all__ = ["zookeeper"]

# How long an example takes says how busy the machine is, and nothing else.
settings.register_profile("bkbox", deadline=None)
settings.load_profile("bkbox")


def pytest_report_header() -> str:
    return f"simulated clusters: seeds from {seed_of_the_commit()} on (SIM_SEED)"
