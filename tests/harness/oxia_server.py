"""A stand-in for Oxia servers, a process of its own: ``oxia_server.py PORT…``.

Each port is a server; together they lead the shards of any namespace, in memory. It keeps to Oxia's protocol and to
what its servers do, as read in their source: version ids drawn from one counter per shard, conditions on them,
sessions that end without heartbeats and take their records with them, notifications by offset, the hierarchical order
of keys, redirections by a hint. Oxia's own client for Java works on it, under Pulsar's driver
(tests/interop/test_pulsar_driver.py). It is no proof that a real server does the same: it has no log, no replicas and
no elections, and its faults are those that a test asks for, through ``Do``, a call of its own.

Namespaces come into being when they are asked for; a name begins with the number of its shards: ``3-x``. ``natural`` in
the name: keys are sorted by their bytes; ``silent``: there are no notifications.

With ``OXIA_TLS=CERTIFICATE:KEY:AUTHORITY`` in the environment the servers speak TLS and want certificates; with
``OXIA_TOKEN`` a bearer token.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc

from bkbox.metadata.oxia import messages as m
from bkbox.wire.protobuf import Message, Values, decode, encode
from tests.harness.oxia import CONTROL
from tests.harness.oxia_shards import Shard

SERVICES = (m.SERVICE, "io.oxia.proto.v1.OxiaClient")
TOKEN = os.environ.get("OXIA_TOKEN", "")
SESSION_MIN_MS, SESSION_MAX_MS = 2_000, 300_000
REASONS = {
    "NODE_IS_NOT_LEADER": (grpc.StatusCode.ABORTED, "oxia: node is not leader"),
    "SESSION_NOT_FOUND": (grpc.StatusCode.NOT_FOUND, "oxia: session not found"),
    "NAMESPACE_NOT_FOUND": (grpc.StatusCode.NOT_FOUND, "oxia: namespace not found"),
    "INVALID_SESSION_TIMEOUT": (
        grpc.StatusCode.INVALID_ARGUMENT,
        "oxia: invalid session timeout",
    ),
    "NOTIFICATIONS_NOT_ENABLED": (
        grpc.StatusCode.FAILED_PRECONDITION,
        "oxia: notifications not enabled on namespace",
    ),
    "RESOURCE_UNAVAILABLE": (grpc.StatusCode.UNAVAILABLE, "oxia: resource unavailable"),
}


class Cluster:
    """All servers of the stand-in."""

    def __init__(self, ports: list[int]) -> None:
        self.ports = ports
        self.namespaces: dict[str, list[Shard]] = {}
        self.numbers = itertools.count()
        self.changed = asyncio.Condition()
        self.faults: list[tuple[str, str]] = []
        """Of the next writes of keys that contain a text: ``lose request``, ``lose response``."""
        self.calls: list[str] = []
        self.redirects = True
        self.away: set[int] = set()
        self.generation = 0

    def shards_of(self, name: str) -> list[Shard]:
        if name not in self.namespaces:
            count = int(name.partition("-")[0])
            ends = [(1 << 32) * each // count for each in range(count + 1)]
            self.namespaces[name] = [
                Shard(
                    number=next(self.numbers),
                    first=ends[each],
                    last=ends[each + 1] - 1,
                    leader=each % len(self.ports),
                    natural="natural" in name,
                    silent="silent" in name,
                )
                for each in range(count)
            ]
        return self.namespaces[name]

    def shard(self, number: int) -> Shard | None:
        every = itertools.chain.from_iterable(self.namespaces.values())
        return next((each for each in every if each.number == number), None)

    def address(self, server: int) -> str:
        return f"127.0.0.1:{self.ports[server]}"

    def assignments(self, name: str) -> Values:
        shards = [
            {
                "shard": each.number,
                "leader": self.address(each.leader),
                "hash_range": {"min": each.first, "max": each.last},
            }
            for each in self.shards_of(name)
        ]
        found = {"assignments": shards, "router": m.KeyRouter.XXHASH3}
        return {"namespaces": [{"key": name, "value": found}]}

    async def say_changed(self) -> None:
        async with self.changed:
            self.generation += 1
            self.changed.notify_all()
        for shards in self.namespaces.values():
            for shard in shards:
                async with shard.grown:
                    shard.grown.notify_all()

    async def expire_always(self) -> None:
        while True:
            for shards in list(self.namespaces.values()):
                for shard in list(shards):
                    await shard.expire()
            await asyncio.sleep(0.05)

    # ---- what tests ask for ---------------------------------------------------------------

    async def do(self, asked: dict[str, Any]) -> Any:
        match asked:
            case {"do": "fault", "kind": kind, "key": text}:
                self.faults.append((kind, text))
            case {"do": "faults"}:
                return self.faults
            case {"do": "move", "namespace": name, "tell": tell}:
                for shard in self.shards_of(name):
                    shard.move((shard.leader + 1) % len(self.ports))
                self.redirects = tell
                if tell:
                    await self.say_changed()
                else:
                    for shard in self.shards_of(name):
                        async with shard.grown:
                            shard.grown.notify_all()
            case {"do": "tell"}:
                self.redirects = True
                await self.say_changed()
            case {"do": "split", "namespace": name}:
                halves = [each.split(self.numbers) for each in self.shards_of(name)]
                self.namespaces[name] = list(itertools.chain.from_iterable(halves))
                await self.say_changed()
            case {"do": "expire", "namespace": name}:
                for shard in self.shards_of(name):
                    for number in list(shard.sessions):
                        await shard.end_session(number)
            case {"do": "away", "servers": servers}:
                self.away = set(servers)
                await self.say_changed()
            case {"do": "records", "namespace": name}:
                return {
                    key: [
                        record.value.hex(),
                        record.session is not None,
                        record.version_id,
                        record.modifications,
                        shard.number,
                    ]
                    for shard in self.shards_of(name)
                    for key, record in shard.records.items()
                }
            case {"do": "sessions", "namespace": name}:
                return sum(len(shard.sessions) for shard in self.shards_of(name))
            case {"do": "calls"}:
                found, self.calls = self.calls, []
                return found
            case _:
                raise ValueError(asked)
        return None


class Server(grpc.GenericRpcHandler):  # type: ignore[misc] # grpc has no types
    """One of the servers."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self._cluster = cluster
        self._number = number
        one, many = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        self._handlers: dict[str, Any] = {
            "GetShardAssignments": _of(
                many, self._assignments, m.SHARD_ASSIGNMENTS_REQUEST, m.SHARD_ASSIGNMENTS
            ),
            "WriteStream": _of(
                grpc.stream_stream_rpc_method_handler,
                self._write_stream,
                m.WRITE_REQUEST,
                m.WRITE_RESPONSE,
            ),
            "Read": _of(many, self._read, m.READ_REQUEST, m.READ_RESPONSE),
            "List": _of(many, self._list, m.LIST_REQUEST, m.LIST_RESPONSE),
            "RangeScan": _of(many, self._scan, m.RANGE_SCAN_REQUEST, m.RANGE_SCAN_RESPONSE),
            "GetNotifications": _of(
                many, self._notifications, m.NOTIFICATIONS_REQUEST, m.NOTIFICATION_BATCH
            ),
            "CreateSession": _of(
                one, self._create_session, m.CREATE_SESSION_REQUEST, m.CREATE_SESSION_RESPONSE
            ),
            "KeepAlive": _of(one, self._keep_alive, m.SESSION, m.EMPTY),
            "CloseSession": _of(one, self._close_session, m.SESSION, m.EMPTY),
        }

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        if handler_call_details.method == CONTROL:
            return grpc.unary_unary_rpc_method_handler(self._do)
        service, _, name = handler_call_details.method.lstrip("/").partition("/")
        self._cluster.calls.append(name)
        token = dict(handler_call_details.invocation_metadata).get("authorization")
        if TOKEN and token != f"Bearer {TOKEN}":
            return grpc.unary_unary_rpc_method_handler(_refuse)
        return self._handlers.get(name) if service in SERVICES else None

    async def _do(self, request: bytes, _context: Any) -> bytes:
        return json.dumps(await self._cluster.do(json.loads(request))).encode()

    async def _leading(self, number: int, context: Any) -> Shard:
        if self._number in self._cluster.away:
            await _abort(context, "RESOURCE_UNAVAILABLE")
        shard = self._cluster.shard(number)
        if shard is None or shard.leader != self._number:
            hint = (
                {"shard": str(number), "leader": self._cluster.address(shard.leader)}
                if shard is not None and self._cluster.redirects
                else {}
            )
            await _abort(context, "NODE_IS_NOT_LEADER", **hint)
        assert shard is not None
        return shard

    async def _assignments(self, request: Values, context: Any) -> AsyncIterator[Values]:
        name = request.get("namespace") or "default"
        if not name.partition("-")[0].isdigit():
            await _abort(context, "NAMESPACE_NOT_FOUND")
        while self._number not in self._cluster.away:
            generation = self._cluster.generation
            yield self._cluster.assignments(name)
            async with self._cluster.changed:
                while generation == self._cluster.generation:
                    await self._cluster.changed.wait()
        await _abort(context, "RESOURCE_UNAVAILABLE")

    async def _write_stream(
        self, requests: AsyncIterator[Values], context: Any
    ) -> AsyncIterator[Values]:
        about = dict(context.invocation_metadata())
        shard = await self._leading(int(about["shard-id"]), context)
        assert shard in self._cluster.shards_of(about["namespace"])
        async for request in requests:
            shard = await self._leading(shard.number, context)
            every = [*request["puts"], *request["deletes"]]
            fault = self._fault([each.get("key", "") for each in every])
            if fault == "lose request":
                await _abort(context, "RESOURCE_UNAVAILABLE")
            response = await shard.commit(request)
            if fault == "lose response":
                await _abort(context, "RESOURCE_UNAVAILABLE")
            yield response

    def _fault(self, keys: list[str]) -> str:
        for fault in self._cluster.faults:
            if any(fault[1] in key for key in keys):
                self._cluster.faults.remove(fault)
                return fault[0]
        return ""

    async def _read(self, request: Values, context: Any) -> AsyncIterator[Values]:
        shard = await self._leading(request.get("shard", 0), context)
        yield {"gets": [shard.get(each) for each in request["gets"]]}

    async def _list(self, request: Values, context: Any) -> AsyncIterator[Values]:
        shard = await self._leading(request.get("shard", 0), context)
        keys = shard.keys(request)
        for start in range(0, len(keys), 100):
            yield {"keys": keys[start : start + 100]}

    async def _scan(self, request: Values, context: Any) -> AsyncIterator[Values]:
        shard = await self._leading(request.get("shard", 0), context)
        for key in shard.keys(request):
            yield {"records": [shard.get({"key": key, "include_value": True}) | {"key": key}]}

    async def _notifications(self, request: Values, context: Any) -> AsyncIterator[Values]:
        shard = await self._leading(request.get("shard", 0), context)
        if shard.silent:
            await _abort(context, "NOTIFICATIONS_NOT_ENABLED")
        offset = request.get("start_offset_exclusive")
        if offset is None:
            offset = shard.offset
            yield {"shard": shard.number, "offset": offset}
        term = shard.term
        while True:
            batches = [each for each in shard.log if each["offset"] > offset]
            for batch in batches:
                yield batch
                offset = batch["offset"]
            if term != shard.term or self._cluster.shard(shard.number) is not shard:
                break
            if self._number in self._cluster.away:
                break
            async with shard.grown:
                if shard.log and shard.log[-1]["offset"] > offset:
                    continue
                await shard.grown.wait()
        await _abort(context, "RESOURCE_UNAVAILABLE")

    async def _create_session(self, request: Values, context: Any) -> Values:
        shard = await self._leading(request.get("shard", 0), context)
        if not SESSION_MIN_MS <= request.get("session_timeout_ms", 0) <= SESSION_MAX_MS:
            await _abort(context, "INVALID_SESSION_TIMEOUT")
        return {"session_id": await shard.create_session(request)}

    async def _keep_alive(self, request: Values, context: Any) -> Values:
        shard = await self._leading(request.get("shard", 0), context)
        session = shard.sessions.get(request.get("session_id", 0))
        if session is None:
            await _abort(context, "SESSION_NOT_FOUND")
            raise AssertionError
        session.deadline = time.monotonic() + session.timeout_s
        return {}

    async def _close_session(self, request: Values, context: Any) -> Values:
        shard = await self._leading(request.get("shard", 0), context)
        number = request.get("session_id", 0)
        if number not in shard.sessions:
            await _abort(context, "SESSION_NOT_FOUND")
        await shard.end_session(number)
        return {}


def _of(kind: Any, call: Any, request: Message, response: Message) -> Any:
    return kind(
        call,
        request_deserializer=lambda data: decode(request, data),
        response_serializer=lambda values: encode(response, values),
    )


async def _abort(context: Any, reason: str, **metadata: str) -> None:
    code, text = REASONS[reason]
    entries = [{"key": key, "value": value} for key, value in metadata.items()]
    info = encode(m.ERROR_INFO, {"reason": reason, "domain": "oxia.io", "metadata": entries})
    detail = {"type_url": m.ERROR_INFO_TYPE, "value": info}
    status = encode(m.RPC_STATUS, {"code": code.value[0], "message": text, "details": [detail]})
    await context.abort(code, text, (("grpc-status-details-bin", status),))


async def _refuse(_request: bytes, context: Any) -> None:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, "no such token")


def _tls() -> grpc.ServerCredentials | None:
    if "OXIA_TLS" not in os.environ:
        return None
    certificate, key, authority = (
        Path(each).read_bytes() for each in os.environ["OXIA_TLS"].split(":")
    )
    return grpc.ssl_server_credentials([(key, certificate)], authority, require_client_auth=True)


async def main(ports: list[int]) -> None:
    cluster = Cluster(ports)
    servers = []
    for number, port in enumerate(ports):
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        server.add_generic_rpc_handlers((Server(cluster, number),))
        address, tls = f"127.0.0.1:{port}", _tls()
        listening = (
            server.add_insecure_port(address)
            if tls is None
            else server.add_secure_port(address, tls)
        )
        assert listening == port
        await server.start()
        servers.append(server)
    print("ready", flush=True)
    expiring = asyncio.create_task(cluster.expire_always())
    await asyncio.to_thread(sys.stdin.read)  # until the tests end
    expiring.cancel()
    await asyncio.gather(*(server.stop(0) for server in servers))


if __name__ == "__main__":
    asyncio.run(main([int(port) for port in sys.argv[1:]]))
