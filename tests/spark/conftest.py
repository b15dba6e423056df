"""One Spark session and one cluster for all tests of the data source: a session takes ten seconds to start."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.java import require_java
from tests.repair.copies import Cluster

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    require_java()
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.master("local[2,2]")
        .appName("tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
    )
    # Its JVM keeps these; processes of the tests that run in this one later do not get them.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)  # else the first python3 on PATH
        patch.setenv("SPARK_HOME", str(without_zip(tmp_path_factory.mktemp("spark-home"))))
        found = builder.getOrCreate()
    found.sparkContext.setLogLevel("ERROR")
    yield found
    found.stop()


def without_zip(folder: Path) -> Path:
    """A home of Spark without its zip file of Python modules: each worker would compile what it imports from there, for
    a second of CPU. So they are those that are installed."""
    import pyspark

    for name in ("bin", "jars"):
        (folder / name).symlink_to(Path(pyspark.__file__).parent / name)
    return folder


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three bookies on SQLite."""
    found = Cluster(tmp_path_factory.mktemp("spark"))
    found.start(3)
    yield found
    found.close()
