"""``--engine`` and its options: selects where a pipeline is executed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from bkbox.audit.engine import Engine, LocalEngine
from bkbox.audit.extras import need

F = TypeVar("F", bound=Callable[..., Any])


def engine_options(command: F) -> F:
    """``--engine``, ``--master``, ``--jobs``, passed as ``engine``: a function that returns a context with the
    engine."""

    @functools.wraps(command)
    def chosen(*args: Any, engine: str, master: str | None, jobs: int, **kwargs: Any) -> Any:
        if engine == "local" and master is not None:
            raise click.UsageError("--master is for --engine spark")
        return command(*args, engine=lambda: opened(engine, master, jobs), **kwargs)

    for option in (
        click.option(
            "--jobs",
            type=click.IntRange(1, 256),
            default=1,
            show_default=True,
            help="With the local engine: so many processes.",
        ),
        click.option(
            "--master", metavar="URL", help="With Spark: where it runs [default: local[*]]."
        ),
        click.option(
            "--engine",
            type=click.Choice(["local", "spark"]),
            default="local",
            show_default=True,
            help="Do the work here, or on Spark.",
        ),
    ):
        chosen = option(chosen)
    return chosen  # type: ignore[return-value]


@contextmanager
def opened(name: str, master: str | None, jobs: int) -> Iterator[Engine]:
    """Opens the engine. Raises OperatorError if a package that it needs is not installed."""
    if name == "local":
        yield LocalEngine(jobs)
        return
    need("pyspark", "pyspark_bookkeeper", extra="spark", what="--engine spark")
    from pyspark_bookkeeper.engine import SparkEngine

    engine = SparkEngine(master)
    try:
        yield engine
    finally:
        engine.close()
