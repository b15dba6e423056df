"""The bytes of messages and the hashes of keys, as upstream's clients and servers make them.

``messages.json`` was written by the generated code of upstream's client for Python; the hashes are those of upstream's
hash_test.go.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc
import pytest

from bkbox.errors import MetadataError
from bkbox.metadata.oxia import messages as m
from bkbox.metadata.oxia.failures import (
    NotLeaderError,
    OxiaRefusalError,
    SessionExpiredError,
    meaning_of,
)
from bkbox.metadata.oxia.shards import Shard, Shards, hash_of, shards_of
from bkbox.metadata.tree.nodes import LostReplyError
from bkbox.wire.protobuf import decode, encode

UPSTREAM: dict[str, str] = json.loads((Path(__file__).parent / "messages.json").read_text())
VERSION = {
    "version_id": 7,
    "modifications": 3,
    "created_ms": 1_700_000_000_123,
    "modified_ms": 1_700_000_000_456,
    "session_id": 0,
    "client_identity": "bkbox:x:1",
}
RANGE = {"shard": 5, "start_inclusive": "/a/", "end_exclusive": "/a//"}
VALUES: dict[str, dict[str, Any]] = {
    "SHARD_ASSIGNMENTS_REQUEST": {"namespace": "ns"},
    "SHARD_ASSIGNMENTS": {
        "namespaces": [
            {
                "key": "ns",
                "value": {
                    "assignments": [
                        {
                            "shard": 5,
                            "leader": "h:6648",
                            "hash_range": {"min": 1 << 31, "max": (1 << 32) - 1},
                        }
                    ],
                    "router": m.KeyRouter.XXHASH3,
                },
            }
        ]
    },
    "WRITE_REQUEST": {
        "shard": 5,
        "puts": [
            {
                "key": "/a/b",
                "value": b"\x00v",
                "expected_version_id": -1,
                "session_id": 9,
                "client_identity": "me",
            }
        ],
        "deletes": [{"key": "/c", "expected_version_id": 12}],
    },
    "WRITE_RESPONSE": {
        "puts": [{"version": VERSION}, {"status": m.Status.UNEXPECTED_VERSION_ID}],
        "deletes": [{"status": m.Status.KEY_NOT_FOUND}],
    },
    "READ_REQUEST": {"shard": 5, "gets": [{"key": "/a", "include_value": True}]},
    "READ_RESPONSE": {
        "gets": [{"version": VERSION, "value": b"v"}, {"status": m.Status.KEY_NOT_FOUND}]
    },
    "LIST_REQUEST": RANGE,
    "LIST_RESPONSE": {"keys": ["/a/b", "/a/c"]},
    "RANGE_SCAN_REQUEST": RANGE,
    "RANGE_SCAN_RESPONSE": {"records": [{"version": VERSION, "value": b"v", "key": "/a/b"}]},
    "CREATE_SESSION_REQUEST": {"shard": 5, "session_timeout_ms": 10_000, "client_identity": "me"},
    "CREATE_SESSION_RESPONSE": {"session_id": 77},
    "SESSION": {"shard": 5, "session_id": 77},
    "NOTIFICATIONS_REQUEST": {"shard": 5, "start_offset_exclusive": 4},
    "NOTIFICATION_BATCH": {
        "shard": 5,
        "offset": 8,
        "timestamp_ms": 1_700_000_000_123,
        "notifications": [
            {"key": "/a", "value": {"type": m.NotificationType.KEY_DELETED}},
            {
                "key": "/b",
                "value": {"type": m.NotificationType.KEY_RANGE_DELETED, "key_range_last": "/c"},
            },
        ],
    },
}


@pytest.mark.parametrize("name", UPSTREAM)
def test_messages_are_those_of_upstream(name: str) -> None:
    message, data = getattr(m, name), bytes.fromhex(UPSTREAM[name])
    assert encode(message, VALUES[name]) == data
    assert decode(message, data) == VALUES[name]


def test_numbers_of_zero_that_are_absent() -> None:
    assert decode(m.GET_RESPONSE, b"") == {}
    found = decode(m.WRITE_RESPONSE, bytes.fromhex("0a00"))
    assert found == {"puts": [{}], "deletes": []}, "a success has neither status nor shard"


@pytest.mark.parametrize(
    ("key", "hashed"), [("foo", 125730186), ("bar", 2687685474), ("baz", 862947621)]
)
def test_keys_are_hashed_as_by_upstream(key: str, hashed: int) -> None:
    assert hash_of(key) == hashed


def test_a_key_belongs_to_the_shard_with_its_hash() -> None:
    shards = Shards()
    assert shards.shard_of("foo") < 0
    shards.update([Shard(3, "a:1", 0, 125730186), Shard(4, "", 125730187, (1 << 32) - 1)])
    assert [shards.shard_of(key) for key in ("foo", "bar", "baz")] == [3, 4, 4]
    assert (shards.leader_of(3), shards.leader_of(4), shards.leader_of(5)) == ("a:1", "", "")
    shards.redirect(4, "b:2")
    shards.redirect(9, "c:3")
    assert shards.leaders() == ["a:1", "b:2"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"assignments": []}, "not placed by XXHASH3"),
        ({"assignments": [{"shard": 1}], "router": m.KeyRouter.XXHASH3}, "no range of hashes"),
    ],
)
def test_a_map_of_shards_that_is_not_known_here(value: dict[str, Any], text: str) -> None:
    with pytest.raises(MetadataError, match=text):
        shards_of("ns", {"namespaces": [{"key": "ns", "value": value}]})
    with pytest.raises(MetadataError, match="not known to its server"):
        shards_of("other", {"namespaces": [{"key": "ns", "value": value}]})


# ---- failures -----------------------------------------------------------------------------------


def failure(code: grpc.StatusCode, text: str, details: bytes | None = None) -> MetadataError:
    trailing = (
        grpc.aio.Metadata()
        if details is None
        else grpc.aio.Metadata(("grpc-status-details-bin", details))
    )
    return meaning_of("h:1", grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailing, text))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("node is not leader for shard 3", NotLeaderError),
        ("oxia: session not found", SessionExpiredError),
        ("oxia: namespace not found", OxiaRefusalError),
        ("oxia: notifications not enabled on namespace", OxiaRefusalError),
        ("oxia: operation was cancelled", LostReplyError),
        ("oxia: resource is already closed", LostReplyError),
        ("something else", LostReplyError),
    ],
)
def test_what_servers_before_0_17_say_in_words(text: str, kind: type[MetadataError]) -> None:
    assert type(failure(grpc.StatusCode.UNKNOWN, text)) is kind


def error_info(reason: str, domain: str = "oxia.io", **metadata: str) -> bytes:
    entries = [{"key": key, "value": value} for key, value in metadata.items()]
    info = encode(m.ERROR_INFO, {"reason": reason, "domain": domain, "metadata": entries})
    detail = {"type_url": m.ERROR_INFO_TYPE, "value": info}
    return encode(m.RPC_STATUS, {"code": 10, "message": "text", "details": [detail]})


def test_a_redirection_names_the_leader() -> None:
    found = failure(
        grpc.StatusCode.ABORTED, "text", error_info("NODE_IS_NOT_LEADER", leader="b:2", shard="3")
    )
    assert isinstance(found, NotLeaderError)
    assert found.leader == "b:2"
    hint = encode(m.LEADER_HINT, {"shard": 3, "leader": "c:3"})
    detail = {"type_url": "type.googleapis.com/io.oxia.proto.v1.LeaderHint", "value": hint}
    older = encode(m.RPC_STATUS, {"code": 106, "message": "text", "details": [detail]})
    found = failure(grpc.StatusCode.UNKNOWN, "node is not leader for shard 3", older)
    assert isinstance(found, NotLeaderError)
    assert found.leader == "c:3"


@pytest.mark.parametrize(
    ("code", "details", "kind"),
    [
        (grpc.StatusCode.ABORTED, error_info("ABORTED"), LostReplyError),
        (grpc.StatusCode.UNAVAILABLE, error_info("RESOURCE_UNAVAILABLE"), LostReplyError),
        (grpc.StatusCode.ABORTED, error_info("NODE_IS_NOT_LEADER", "else.where"), LostReplyError),
        (grpc.StatusCode.ABORTED, b"\xff", LostReplyError),
        (grpc.StatusCode.NOT_FOUND, error_info("SESSION_NOT_FOUND"), SessionExpiredError),
        (grpc.StatusCode.UNAUTHENTICATED, None, OxiaRefusalError),
        (grpc.StatusCode.DEADLINE_EXCEEDED, None, LostReplyError),
        (grpc.StatusCode.INTERNAL, None, LostReplyError),
    ],
)
def test_only_what_is_definite_is_a_refusal(
    code: grpc.StatusCode, details: bytes | None, kind: type[MetadataError]
) -> None:
    assert type(failure(code, "text", details)) is kind
