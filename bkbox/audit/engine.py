"""What carries the pieces of a pipeline out: this process, some of its children, or Spark.

A pipeline is a ``Job``, which is told a chunk and gives a result, and a list of chunks. Both travel to where the work
is done, so they are pickled; a job connects by itself. Results come back in the order of the chunks, whatever engine it
is: so all engines come to the same tables. A chunk may be done twice where an executor was lost in between.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Protocol, TypeVar

from bkbox.base.limits import GC_THRESHOLDS

C_contra = TypeVar("C_contra", contravariant=True)
C = TypeVar("C")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Job(Protocol[C_contra, R_co]):
    """What is done with each chunk, in an event loop of its own. Raises BkboxError."""

    async def run(self, chunk: C_contra) -> R_co:
        """The result of one chunk."""


class Engine(Protocol):
    """See above. ``name``: as in ``--engine``."""

    name: str

    def map(self, job: Job[C, R], chunks: Iterable[C]) -> Iterator[R]:
        """The results, in the order of the chunks. Raises what a job raises."""


def run_chunk(job: Job[C, R], chunk: C) -> R:
    """One chunk, here and now."""
    usual = gc.get_threshold()
    # Hundreds of thousands of entries come and go, and none is part of a cycle.
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        return asyncio.run(job.run(chunk))
    finally:
        gc.set_threshold(*usual)


class LocalEngine:
    """``processes``: so many children, or 1 for none: everything in this process."""

    name = "local"

    def __init__(self, processes: int = 1) -> None:
        self._processes = processes

    def map(self, job: Job[C, R], chunks: Iterable[C]) -> Iterator[R]:
        if self._processes == 1:
            for chunk in chunks:
                yield run_chunk(job, chunk)
            return
        yield from self._in_children(job, chunks)

    def _in_children(self, job: Job[C, R], chunks: Iterable[C]) -> Iterator[R]:
        # Spawned, not forked: threads and event loops do not survive a fork.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(self._processes, mp_context=context) as pool:
            under_way: list[Future[R]] = []
            try:
                for chunk in chunks:
                    under_way.append(pool.submit(run_chunk, job, chunk))
                    if len(under_way) > 2 * self._processes:
                        yield under_way.pop(0).result()
                while under_way:
                    yield under_way.pop(0).result()
            finally:
                for each in under_way:
                    each.cancel()
