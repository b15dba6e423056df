"""Records of one log to another by Spark, each once: those that hold a word, in upper case.

    export PYSPARK_PYTHON=$(command -v python)    # what Spark runs its tasks with
    python spark_log.py zk://zk1:2181/ledgers orders shouted urgent CHECKPOINTS

Started again with the same folder of checkpoints it goes on behind what it has done.
"""

from __future__ import annotations

import sys

import pyspark_bookkeeper
from pyspark.sql import SparkSession


def run(spark: SparkSession, uri: str, source: str, target: str, word: str, folder: str) -> None:
    spark.dataSource.register(pyspark_bookkeeper.DefaultSource)
    records = (
        spark.readStream.format("bookkeeper")
        .options(**{"metadata.uri": uri, "log": source, "startingOffsets": "earliest"})
        .load()
        .selectExpr("cast(value as string) as value")
    )
    wanted = records.where(records.value.contains(word)).selectExpr("upper(value) as value")
    query = (
        wanted.writeStream.format("bookkeeper")
        .options(**{"metadata.uri": uri, "log": target, "checkpointLocation": folder})
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    if len(sys.argv) != 6:
        sys.exit("usage: spark_log.py METADATA-URI SOURCE TARGET WORD CHECKPOINTS")
    run(SparkSession.builder.getOrCreate(), *sys.argv[1:])
