"""Connects: the client of a query, by its options."""

from __future__ import annotations

import gc
import random
import socket
from collections.abc import AsyncGenerator, Hashable
from contextlib import asynccontextmanager

from bkbox import metadata as stores
from bkbox.client.client import Client
from bkbox.client.options import ClientOptions
from pyspark_bookkeeper.background import Background
from pyspark_bookkeeper.options import CommonOptions

_SHARED: dict[Hashable, Background[Client]] = {}


@asynccontextmanager
async def connected(options: CommonOptions) -> AsyncGenerator[Client, None]:
    """A client that reads from the bookies closest to this host. Raises ConfigError, MetadataError."""
    given = ClientOptions(**{"closest_to": socket.gethostname(), **options.client})
    rng = random.Random()  # noqa: S311 placement and jitter
    async with (
        await stores.connect(options.uri, options.metadata_timeout_ms / 1000) as store,
        Client(store, given, rng) as client,
    ):
        yield client


def shared(options: CommonOptions) -> Background[Client]:
    """The client of all tasks of this process with the same options: connecting takes as long as reading megabytes. It
    stays until the process ends; Spark ends an idle process after a minute. Only tasks may call this: a process that is
    forked must not have a client."""
    key = (options.uri, options.metadata_timeout_ms, *sorted(options.client.items()))

    async def open_() -> AsyncGenerator[Client, None]:
        async with connected(options) as client:
            yield client

    if key not in _SHARED:
        # Spark collects garbage after each task, over all objects of its libraries: none of these is garbage, and all
        # stay.
        gc.freeze()
        _SHARED[key] = Background(open_)
    return _SHARED[key]
