"""Fixtures of all tests, their tiers, and what pytest prints at the beginning and the end of a run."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.harness.fixtures import make_bookie
from tests.harness.mounts import make_mount
from tests.harness.oxia import oxia
from tests.harness.seeds import EXAMPLES, seed_of_the_commit
from tests.harness.tiers import TESTS, TIERS, note_seconds, scope_of, tier_of, tier_of_path
from tests.harness.zookeeper import zookeeper

__all__ = ["make_bookie", "make_mount", "oxia", "zookeeper"]

# How long an example takes says how busy the machine is, and nothing else.
settings.register_profile("bkbox", deadline=None, max_examples=EXAMPLES)
settings.load_profile("bkbox")


def pytest_report_header() -> str:
    return f"simulated clusters: seeds from {seed_of_the_commit()} on (SIM_SEED)"


def pytest_configure(config: pytest.Config) -> None:
    for tier, proves in TIERS.items():
        config.addinivalue_line("markers", f"{tier}: {proves}")
    config.option.loadscopereorder = (
        False  # of pytest-xdist: scopes begin in the order of their tests
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files of another tier than ``-m TIER`` or ``-m "not TIER"`` are not even imported."""
    tier = tier_of_path(collection_path.relative_to(TESTS).as_posix())
    wanted = config.option.markexpr
    if tier is None or collection_path.is_dir():
        return None
    return wanted == f"not {tier}" or (wanted in TIERS and wanted != tier) or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tiers = {item: tier_of(item) for item in items}
    for item, tier in tiers.items():
        if tier not in {mark.name for mark in item.iter_markers()}:
            item.add_marker(tier)
    if hasattr(config, "workerinput"):
        # Side by side, the longest begin first, so that none of them goes on alone at the end.
        order = list(reversed(TIERS))
        items.sort(key=lambda item: order.index(tiers[item]))


@pytest.hookimpl(optionalhook=True)  # the tests of mutants run without xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    return _ByScope(config, log) if config.getoption("dist") == "load" else None


class _ByScope(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if item.get_closest_marker("unit") is None:
        return (yield)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess.Popen, "__init__", _start_nothing)
        return (yield)


def _start_nothing(*arguments: Any, **_: Any) -> NoReturn:
    pytest.fail(
        f"a unit test starts {arguments[1:]}: mark it 'process', or see tests/harness/tiers.py"
    )


def pytest_terminal_summary(terminalreporter: Any, exitstatus: int, config: pytest.Config) -> None:
    """Tests and seconds of each tier; in a run of what had failed, the tests that passed now."""
    tests: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    again = []
    for outcome in ("passed", "failed", "skipped", "error", ""):
        for report in terminalreporter.stats.get(outcome, ()):
            tier = next((name for name in TIERS if name in getattr(report, "keywords", ())), None)
            if tier is not None:
                tests[tier] += report.when == "call" or report.outcome == "skipped"
                seconds[tier] += report.duration
                if outcome == "passed":
                    again.append(report.nodeid)
    if config.getoption("lf", False):
        for nodeid in again:
            terminalreporter.write_line(f"NEEDED A SECOND RUN {nodeid}")
    for tier in tests:
        terminalreporter.write_line(f"{tier}: {tests[tier]} tests, {seconds[tier]:.0f} s")
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and exitstatus in (0, 1)
    if whole and not config.getoption("lf", True) and not config.option.collectonly:
        note_seconds({tier: round(seconds[tier]) for tier in tests})
