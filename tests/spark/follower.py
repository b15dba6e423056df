"""A streaming query as a process of its own, which is there to be killed: it copies a log until somebody does.

``python -m tests.spark.follower URI LOG FOLDER SINK LOSS ENTRIES``. ``SINK``: ``parquet``, into FOLDER/out, or
``dataset``, into the dataset LOG-copied; ``LOSS``: failOnDataLoss; ``ENTRIES``: of a batch. The checkpoint is
FOLDER/checkpoint.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil


def following(
    spark: Any, uri: str, log: str, folder: Path, sink: str, loss: str, entries: int
) -> Any:
    """The query, to be given a trigger and started."""
    frame = (
        spark.readStream.format("bookkeeper")
        .option("metadata.uri", uri)
        .option("log", log)
        .option("startingOffsets", "earliest")
        .option("maxEntriesPerTrigger", str(entries))
        .option("failOnDataLoss", loss)
        .load()
    )
    if sink == "parquet":
        query = frame.writeStream.format("parquet").option("path", str(folder / "out"))
    else:
        query = frame.select("value").writeStream.format("bookkeeper")
        query = query.option("metadata.uri", uri).option("dataset", f"{log}-copied")
    return query.option("checkpointLocation", str(folder / "checkpoint"))


def main() -> None:
    from pyspark.sql import SparkSession

    uri, log, folder, sink, loss, entries = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    query = following(spark, uri, log, Path(folder), sink, loss, int(entries))
    query.trigger(processingTime="0 seconds").start().awaitTermination()


def kill_all(pid: int) -> None:
    """A follower with its JVM and their Python workers, at once: as when its host is lost."""
    follower = psutil.Process(pid)
    processes = [*follower.children(recursive=True), follower]
    for each in processes:
        with suppress(psutil.NoSuchProcess):  # a Python worker that has just ended by itself
            each.suspend()
    for each in {*processes, *follower.children(recursive=True)}:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    psutil.wait_procs(processes, 30)


if __name__ == "__main__":
    main()
