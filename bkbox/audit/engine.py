"""Engines that execute a pipeline: this process, child processes, or Spark.

A pipeline is a ``Job``, which turns a chunk into a result, and a list of chunks. Jobs and chunks are sent to where they
are executed, so both are pickled; a job opens its own connections. Results come back in the order of the chunks with
every engine, so all engines produce the same tables. A chunk may be executed twice if an executor was lost.
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
    """Processes one chunk, in an event loop of its own. Raises BkboxError."""

    async def run(self, chunk: C_contra) -> R_co:
        """The result of one chunk."""


class Engine(Protocol):
    """Executes a job over chunks (see the module). ``name``: as in ``--engine``."""

    name: str

    def map(self, job: Job[C, R], chunks: Iterable[C]) -> Iterator[R]:
        """The results, in the order of the chunks. Raises what a job raises."""


def run_chunk(job: Job[C, R], chunk: C) -> R:
    """Executes one chunk in this process."""
    usual = gc.get_threshold()
    # Hundreds of thousands of entries are allocated and freed, and none is part of a reference cycle.
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        return asyncio.run(job.run(chunk))
    finally:
        gc.set_threshold(*usual)


class LocalEngine:
    """Executes chunks on this host. ``processes``: the number of child processes; 1 executes everything in this
    process."""

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
            in_flight: list[Future[R]] = []
            try:
                for chunk in chunks:
                    in_flight.append(pool.submit(run_chunk, job, chunk))
                    if len(in_flight) > 2 * self._processes:
                        yield in_flight.pop(0).result()
                while in_flight:
                    yield in_flight.pop(0).result()
            finally:
                for each in in_flight:
                    each.cancel()
