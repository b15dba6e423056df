"""The tiers of the tests: each test belongs to one, by its folder, by what its module imports, or by its own marker.

`make unit` runs ``unit``, `make test` all but ``slow``, `make test-all` all.
"""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

TESTS = Path(__file__).parents[1]
NOTES = TESTS.parent / "build" / "tiers.json"

TIERS = {
    "unit": "codecs, state machines, storage, clients and servers, each inside one process",
    "process": "real bookies, commands and clusters of them: their starts, crashes, limits and security; the screen; "
    "time-outs that are waited for",
    "java": "Apache's client and bookies beside bkbox, and metadata in a real ZooKeeper",
    "spark": "the data source in a Spark session",
    "slow": "long runs of all of these: power cuts, crash points, fuzzing, simulators, chaos, mixed clusters",
}
"""Each tier, and what it proves; those with longer tests come later."""

PATHS = {
    "chaos/test_run.py": "slow",
    "chaos/test_tmpfs.py": "slow",
    "cli/cluster/test_cluster_evening.py": "slow",
    "cli/test_any_words.py": "slow",
    "client/test_client_argument_fuzz.py": "slow",
    "client/test_client_scale.py": "slow",
    "client/connection/test_adds.py": "process",
    "client/ledger/test_client_faults.py": "process",
    "client/ledger/test_client_force_close.py": "process",
    "client/placement/test_placement_topology.py": "process",
    "crash": "slow",
    "crash/test_kill.py": "process",
    "crash/test_lost_host.py": "process",
    "frontend/access/test_frames_cut_and_flipped.py": "process",
    "frontend/overload/test_budgets.py": "process",
    "fuzz": "slow",
    "host/test_evening.py": "slow",
    "host/test_tool_installers.py": "slow",
    "host/test_wheel.py": "slow",
    "interop": "slow",
    "interop/test_one_client_one_kind.py": "java",
    "interop/test_same_results.py": "java",
    "metadata/zookeeper": "java",
    "model/test_model_rows.py": "process",
    "mutation": "slow",
    "pulsar": "slow",
    "repair/limbo/test_killed_phase_two.py": "slow",
    "repair/replication/test_autorecovery_processes.py": "slow",
    "repair/space/test_killed_compaction.py": "slow",
    "repair/test_killed_decommission.py": "slow",
    "repair/test_killed_drain.py": "slow",
    "sim/test_log_simulation.py": "slow",
    "sim/test_sim.py": "slow",
    "spark": "spark",
    "spark/test_spark_away.py": "slow",
    "spark/test_spark_engines.py": "slow",
    "spark/test_spark_exactly_once.py": "slow",
    "spark/test_spark_faults.py": "slow",
    "spark/test_spark_interpreter.py": "slow",
    "spark/test_spark_standalone.py": "slow",
    "supervisor/disks/test_ledger_migration.py": "process",
    "tui/test_every_key.py": "process",
    "tui/test_pictures.py": "process",
    "tui/test_screen.py": "process",
    "upstream": "slow",
}
"""The longest that fits decides. A path that is not here is ``process`` or ``unit``."""

WITH_A_WHEEL = ("host/test_evening.py", "host/test_tool_installers.py", "host/test_wheel.py")
"""They install one, which takes a package index and most of their time."""


def tier_of_path(path: str) -> str | None:
    """The tier of a folder or file in tests/, with ``/`` between its parts; None: see ``tier_of``."""
    parts = path.split("/")
    for length in range(len(parts), 0, -1):
        if tier := PATHS.get("/".join(parts[:length])):
            return tier
    return None


def tier_of(item: pytest.Item) -> str:
    for mark in item.iter_markers():
        if mark.name in TIERS:
            return mark.name
    if tier := tier_of_path(item.path.relative_to(TESTS).as_posix()):
        return tier
    assert isinstance(item, pytest.Function)
    params = item.callspec.params.values() if hasattr(item, "callspec") else ()
    if "zookeeper" in item.fixturenames or {"zookeeper", "metadata-store"} & {*map(str, params)}:
        return "java"
    starters = {"make_bookie", "make_mount", "oxia", "oxia-server"}
    starts = starters & {*item.fixturenames, *map(str, params)} or _starts_processes(item.module)
    return "process" if starts else "unit"


@functools.cache
def _starts_processes(module: ModuleType) -> bool:
    """True if ``module`` imports ``subprocess``, or from a module in tests/ that does."""
    values = vars(module).values()
    names = {
        each.__name__ if isinstance(each, ModuleType) else getattr(each, "__module__", "")
        for each in values
    }
    ours = {name for name in map(str, names) if name.startswith("tests.")} - {module.__name__}
    return "subprocess" in names or any(_starts_processes(sys.modules[name]) for name in ours)


def scope_of(nodeid: str) -> str:
    """Tests of one scope run one after another in one process: those of a file, which may share a cluster; those of a
    folder that starts a ZooKeeper or a JVM with clients; all with Spark, and all with an installed wheel, so that a run
    has one session and one wheel. Other slow ones are a scope each."""
    path = nodeid.partition("::")[0].removeprefix("tests/")
    folder = path.partition("/")[0]
    if folder == "spark" or path in WITH_A_WHEEL:
        return folder
    slow = tier_of_path(path) == "slow"
    if folder in ("interop", "metadata"):
        return path if slow else folder
    return nodeid if slow else path


def noted_seconds() -> dict[str, int]:
    """The seconds of each tier's tests, as the last whole run of it in this checkout noted them."""
    found: dict[str, int] = json.loads(NOTES.read_text()) if NOTES.exists() else {}
    return found


def note_seconds(tiers: dict[str, int]) -> None:
    NOTES.parent.mkdir(exist_ok=True)
    NOTES.write_text(json.dumps(noted_seconds() | tiers))
