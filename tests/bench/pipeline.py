"""``make bench-spark``: the data source beside Parquet and beside Apache's client, and what an audit costs.

Three bookies of bkbox and a ZooKeeper on this host, new ones for each part. How it is measured says pipelinereads.py,
and pipelineaudits.py.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bkbox.bench.memory import PageCache
from bkbox.bench.server import temporary_folder
from tests.bench import pipelineaudits, pipelinereads
from tests.bench.peers.java import ZooKeeper
from tests.bench.peers.report import replace_between
from tests.bench.quiet import DisturbedError, QuietMachine
from tests.harness.java import CHECKOUT, missing_reason
from tests.repair.copies import Cluster


def main() -> int:
    parser = argparse.ArgumentParser(description="The data source and the audit, measured.")
    parser.add_argument("--rounds", type=int, default=5, help="of reads, and of each audit (5)")
    parser.add_argument("--mib", type=int, default=512, help="payload that is read (512)")
    parser.add_argument("--entry", type=int, default=1024, help="bytes of an entry (1024)")
    parser.add_argument("--ledgers", type=int, default=2_000, help="of an audit at 10 x (2000)")
    parser.add_argument("--entries", type=int, default=500, help="of each ledger of an audit (500)")
    parser.add_argument("--no-audit", action="store_true")
    parser.add_argument("--no-reads", action="store_true")
    parser.add_argument("--dir", type=Path, default=Path.cwd(), help="where the bookies write")
    parser.add_argument("--docs", type=Path, default=CHECKOUT / "docs", help="where tables go")
    parser.add_argument("--no-report", action="store_true", help="print the tables, write nothing")
    given = parser.parse_args()
    reason = missing_reason()
    if reason is not None:
        print(f"error: {reason}", file=sys.stderr)
        return 1
    quiet = QuietMachine(strict=not given.no_report)
    tables: list[tuple[str, str, str]] = []
    try:
        with PageCache(given.dir) as page_cache:
            if not given.no_reads:
                text = _in_a_cluster(
                    given.dir,
                    lambda *place: pipelinereads.measure(*place, given, quiet, page_cache),
                )
                tables.append(("performance.md", "spark reads", text))
            if not given.no_audit:
                found = _in_a_cluster(
                    given.dir,
                    lambda *place: pipelineaudits.measure(*place, given, quiet, page_cache),
                )
                tables.append(("performance.md", "audits", pipelineaudits.table(found, given)))
                tables.append(("spark.md", "plan", pipelineaudits.plan(found)))
    except DisturbedError as error:
        print(f"error: {error}: no report is written", file=sys.stderr)
        return 1
    for name, mark, text in tables:
        print(f"{text}\n")
        if not given.no_report:
            page = given.docs / name
            page.write_text(replace_between(page.read_text(), mark, text))
    return 0


def _in_a_cluster(place: Path, do: Callable[[Any, str, Path], Any]) -> Any:
    """What ``do`` comes to, given Spark, a new cluster and a folder."""
    with temporary_folder(place) as root, ExitStack() as stack:
        zookeeper = ZooKeeper(root / "zookeeper")
        stack.callback(zookeeper.kill)
        cluster = Cluster(root, zookeeper.start().new_cluster())
        stack.callback(cluster.close)
        cluster.start(3)
        spark = _session(root)
        stack.callback(spark.stop)
        return do(spark, cluster.uri, root)


def _session(root: Path) -> Any:
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    found = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", str(root / "spark"))
        .getOrCreate()
    )
    found.sparkContext.setLogLevel("ERROR")
    return found


if __name__ == "__main__":
    sys.exit(main())
