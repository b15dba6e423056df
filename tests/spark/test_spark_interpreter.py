"""A Python without pyarrow or bkbox as that of Spark's tasks: the cause is told, and what to set."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark_bookkeeper.interpreter import missing_in

from tests.harness.java import CHECKOUT, require_java
from tests.harness.processes import BKBOX
from tests.repair.copies import Cluster
from tests.spark.sparkledgers import closed

QUERY = """
import sys
from pyspark.sql import SparkSession
spark = (
    SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
spark.read.format("bookkeeper").option("metadata.uri", sys.argv[1]).option("ledgers", sys.argv[2]).load().count()
"""


def test_a_python_that_lacks_what_is_needed(cluster: Cluster, tmp_path: Path) -> None:
    require_java()
    ledger = closed(cluster.uri, 3)
    base = getattr(sys, "_base_executable", sys.executable)
    subprocess.run([base, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    bare = str(tmp_path / "bare/bin/python")
    environment = {
        **{name: value for name, value in os.environ.items() if name != "SPARK_HOME"},
        "PYSPARK_PYTHON": bare,
        "PYTHONPATH": os.pathsep.join([str(CHECKOUT / "spark"), str(CHECKOUT)]),
    }
    done = subprocess.run(
        [sys.executable, "-c", QUERY, cluster.uri, str(ledger)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=200,
    )
    told = f"No module named 'pyarrow': {bare}, which Spark runs its tasks with, lacks it. Set PYSPARK_PYTHON"
    assert told in done.stderr, done.stderr[-3000:]
    done = subprocess.run(
        [
            *BKBOX,
            "audit",
            "--metadata",
            cluster.uri,
            "--engine",
            "spark",
            "-o",
            str(tmp_path / "a"),
        ],
        capture_output=True,
        text=True,
        check=False,
        env={name: value for name, value in environment.items() if name != "PYTHONPATH"},
        timeout=200,
    )
    assert done.returncode != 0
    assert "No module named" in done.stderr, done.stderr[-3000:]
    assert f"{bare}, which Spark runs its tasks with, lacks it. Set PYSPARK_PYTHON" in done.stderr


def test_what_spark_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/python3")
    told = missing_in(
        "Job aborted\n  ModuleNotFoundError: No module named 'pyarrow'\n at org.apache"
    )
    assert told is not None
    assert told.startswith("No module named 'pyarrow': /usr/bin/python3, which Spark")
    assert missing_in("something else") is None
