"""On a cluster of Spark: a master and two workers as processes of their own, on loopback."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

pytest.importorskip("pyspark")

from tests.audit.forging import forge
from tests.harness.java import CHECKOUT, JavaProcess, require_java
from tests.harness.processes import BKBOX, free_port
from tests.repair.copies import Cluster
from tests.spark.sparkledgers import in_cluster, ledgers_of

pytestmark = pytest.mark.skipif(
    os.environ.get("SPARK_STANDALONE") != "1",
    reason="four JVMs more than the machine of the tests is made for: SPARK_STANDALONE=1",
)


@pytest.fixture
def master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    require_java()
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars" / "*"
    port = free_port()
    started: list[JavaProcess] = []
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv(
        "SPARK_HOME", str(jars.parent.parent)
    )  # these two as Spark's own scripts set them
    monkeypatch.setenv("SPARK_SCALA_VERSION", "2.13")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(CHECKOUT / "spark"), str(CHECKOUT)]))

    def start(name: str, *arguments: str) -> JavaProcess:
        process = JavaProcess(name, tmp_path / f"{name}.log")
        command = ["setpriv", "--pdeathsig", "KILL", "java", "-Xmx256m", "-cp", str(jars)]
        process.launch([*command, *arguments])
        started.append(process)
        return process

    deploy = "org.apache.spark.deploy"
    url = f"spark://127.0.0.1:{port}"
    first = start(
        "master",
        f"{deploy}.master.Master",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--webui-port",
        "0",
    )
    first.wait_until(lambda: "I have been elected leader" in first.log_tail(100_000))
    for number in range(2):
        work = ("--work-dir", str(tmp_path / f"work{number}"), "--webui-port", "0")
        size = ("--cores", "1", "--memory", "1g")  # what an executor asks for by default
        worker = start(
            f"worker{number}", f"{deploy}.worker.Worker", "--host", "127.0.0.1", *work, *size, url
        )
        worker.wait_until(
            lambda worker=worker: "Successfully registered" in worker.log_tail(100_000)
        )
    yield url
    for process in started:
        process.kill()


WRITE_AND_READ = """
import sys
from pyspark.sql import SparkSession

uri, master, rows = sys.argv[1:]
spark = SparkSession.builder.master(master).config("spark.driver.host", "127.0.0.1").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
frame = spark.range(0, int(rows), 1, 6).selectExpr("concat(repeat('x', 300), id) as value")
options = {"metadata.uri": uri, "dataset": "killed"}
frame.write.format("bookkeeper").options(**options).mode("append").save()
back = spark.read.format("bookkeeper").options(**options).load()
row = back.selectExpr("count(*) as n", "count(distinct value) as different").first()
ledgers = back.select("ledger_id").distinct().count()
print("RESULT", row.n, row.different, ledgers)
"""


def test_executors_that_are_killed(cluster: Cluster, master: str) -> None:
    """One of the two, in the middle of the write: its tasks are done again, and no row is there twice."""
    before = in_cluster(cluster.uri, lambda ours: ledgers_of(ours.client))
    killed: list[int] = []
    over = threading.Event()

    def kill() -> None:
        while not over.is_set():
            # The job has one, too.
            if len(in_cluster(cluster.uri, lambda ours: ledgers_of(ours.client)) - before) > 1:
                for each in executors()[:1]:
                    each.kill()
                    killed.append(each.pid)
                return
            time.sleep(0.05)

    thread = threading.Thread(target=kill)
    thread.start()
    rows = 300_000
    try:
        done = subprocess.run(
            [sys.executable, "-c", WRITE_AND_READ, cluster.uri, master, str(rows)],
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
    finally:
        over.set()
        thread.join()
    assert done.returncode == 0, done.stderr[-3000:]
    assert killed
    after = in_cluster(cluster.uri, lambda ours: ledgers_of(ours.client))
    assert f"RESULT {rows} {rows} {len(after - before)}" in done.stdout


def executors() -> list[psutil.Process]:
    """Of Spark's workers that this process has started."""
    found = []
    for each in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if any("CoarseGrainedExecutorBackend" in word for word in each.cmdline()):
                found.append(each)
    return found


def test_an_audit_on_a_cluster_of_spark(cluster: Cluster, master: str, tmp_path: Path) -> None:
    names = [bookie.bookie_id for bookie in cluster.bookies]

    async def plant() -> None:
        async with forge(cluster.uri) as found:
            for _ in range(6):
                await found.ledger(names, 20, missing=[(4, names[0])], flipped=[(5, names[1])])

    asyncio.run(plant())
    folder = tmp_path / "audit"
    done = subprocess.run(
        [
            *(*BKBOX, "audit", "--metadata", cluster.uri, "--read", "--no-orphans"),
            *("-o", str(folder), "--engine", "spark", "--master", master, "--format", "json"),
        ],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 1, done.stderr[-3000:]
    assert '"engine": "spark"' in done.stdout, done.stderr[-3000:]
    assert '"missing": 6' in done.stdout
    assert '"corrupt": 6' in done.stdout
