"""Oxia for tests: a real server where the variable OXIA_SERVER names one (HOST:PORT, and OXIA_NAMESPACE, ``default``
without it), and the stand-in of oxia_server.py.

A real server has one namespace, which a test empties before it begins; a cluster that was there before the first test
is not touched.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from bkbox.config.metadata_uri import OxiaUri, parse
from tests.harness.processes import free_port

OXIA_SERVER = os.environ.get("OXIA_SERVER", "")
NAMESPACE = os.environ.get("OXIA_NAMESPACE", "default")
SERVERS = 3
CONTROL = "/stand.in/Do"
OURS = "/bkbox-tests"
"""The record of a real server's namespace that says that tests may empty it."""


class Oxia:
    """The stand-in."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        """``environment``: see oxia_server.py."""
        self.ports = [free_port() for _ in range(SERVERS)]
        self._names = itertools.count()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.harness.oxia_server", *map(str, self.ports)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
            env=os.environ | (environment or {}),
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        import bkbox.metadata.oxia  # noqa: F401 - it sets what gRPC reads when it is loaded

        # isort: split
        import grpc  # few tests need it

        self._channel = grpc.insecure_channel(
            f"127.0.0.1:{self.ports[0]}", (("grpc.enable_http_proxy", 0),)
        )

    def close(self) -> None:
        self._channel.close()
        self._process.communicate()

    def new_namespace(self, shards: int = 3, kind: str = "test") -> str:
        return f"{shards}-{kind}-{next(self._names)}"

    def uri(self, namespace: str, server: int = 0) -> str:
        return f"metadata-store:oxia://127.0.0.1:{self.ports[server]}/{namespace}"

    def do(self, what: str, **options: Any) -> Any:
        """Let the servers do something: see ``Cluster.do``."""
        call = self._channel.unary_unary(CONTROL)
        return json.loads(call(json.dumps({"do": what, **options}).encode(), wait_for_ready=True))

    def records(self, namespace: str) -> dict[str, tuple[bytes, bool]]:
        """By key: value, True if it is ephemeral."""
        found = self.do("records", namespace=namespace)
        return {key: (bytes.fromhex(each[0]), each[1]) for key, each in found.items()}


@pytest.fixture(scope="session")
def oxia() -> Iterator[Oxia]:
    server = Oxia()
    yield server
    server.close()


def real_uri() -> str:
    """The URI of the real server's namespace, without a cluster; skips the test if there is no such server."""
    if not OXIA_SERVER:
        pytest.skip("no real server of Oxia: the variable OXIA_SERVER names none")
    uri = f"metadata-store:oxia://{OXIA_SERVER}/{NAMESPACE}"
    asyncio.run(_empty(uri))
    return uri


async def _empty(uri: str) -> None:
    """Delete all records from the root on. A cluster that is not of these tests is left: the test fails."""
    from bkbox.metadata.oxia.connection import Connection
    from bkbox.metadata.oxia.tree import OxiaTree

    parsed = parse(uri)
    assert isinstance(parsed, OxiaUri)
    connection = await Connection.open(parsed, wait_s=20, rng=random.Random(0))
    tree = OxiaTree(connection, "emptying", 10)

    async def empty(path: str) -> None:
        for name in await tree.children(path):
            await empty(f"{path}/{name}")
        await tree.delete(path)

    try:
        if await tree.exists(OURS) is None:
            if await tree.exists(parsed.root) is not None:
                pytest.fail(f"{uri} has a cluster that these tests did not make: name another one")
            await tree.create(OURS)
        await empty(parsed.root)
    finally:
        await tree.close()
