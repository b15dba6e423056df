"""Spark as an engine of the pipelines (bkbox/audit/engine.py): each chunk is a task.

Results come back in waves of tasks, in the order of the chunks, so that the driver holds no more than one wave. If the
pipeline is left, by Ctrl-C too, running tasks are cancelled as a group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import TypeVar
from uuid import uuid4

from pyspark import SparkConf, SparkContext

from bkbox.audit.engine import Job, run_chunk
from bkbox.base.text import error_text
from bkbox.errors import BkboxError, OperatorError
from pyspark_bookkeeper.interpreter import choose_python, missing_in

C = TypeVar("C")
R = TypeVar("R")

_TASKS_PER_SLOT = 8
"""Tasks of a wave per task slot."""


class SparkEngine:
    """``master``: Spark's URL, by default all cores of this host. An existing session is used.

    Raises OperatorError if Spark does not start.
    """

    name = "spark"

    def __init__(self, master: str | None = None, **settings: str) -> None:
        choose_python()
        self._is_own = SparkContext._active_spark_context is None
        conf = SparkConf().setMaster(master or "local[*]").setAppName("bkbox")
        conf.set("spark.ui.showConsoleProgress", "false")
        conf.set("spark.ui.enabled", "false")
        for key, value in settings.items():
            conf.set(key, value)
        try:
            self._context = SparkContext.getOrCreate(conf)
        except Exception as error:
            where = f"Spark does not start with master {conf.get('spark.master')}"
            raise OperatorError(f"{where}: {_cause(error)}") from error

    def map(self, job: Job[C, R], chunks: Iterable[C]) -> Iterator[R]:
        """Raises what the job raises as far as Spark passes it on: an OperatorError with the task's last message."""
        left = iter(chunks)
        group = f"bkbox-{uuid4().hex}"
        try:
            wave = max(_TASKS_PER_SLOT * self._context.defaultParallelism, 1)
            while some := list(islice(left, wave)):
                self._context.setJobGroup(group, "bkbox", interruptOnCancel=True)
                tasks = self._context.parallelize(some, len(some))
                yield from tasks.map(lambda chunk: run_chunk(job, chunk)).collect()
        except BkboxError:
            raise
        except GeneratorExit:
            raise
        except Exception as error:
            raise OperatorError(f"Spark could not carry it out: {_cause(error)}") from error
        finally:
            with suppress(Exception):  # Spark may have ended; the first error is the one to report
                self._context.cancelJobGroup(group)

    def close(self) -> None:
        """Ends Spark, if it was started here."""
        if self._is_own:
            self._context.stop()


def _cause(error: Exception) -> str:
    """The line of a failed task's output with the error itself."""
    missing = missing_in(str(error))
    if missing is not None:
        return missing
    lines = [line.strip(": ") for line in str(error).splitlines() if line.strip(": ")]
    lines = [line for line in lines if not line.startswith("An error occurred while calling")]
    causes = [line for line in lines if line.startswith("bkbox.errors.")]
    return (
        causes[-1].removeprefix("bkbox.errors.")
        if causes
        else (lines[0] if lines else error_text(error))
    )
