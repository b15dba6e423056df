"""Bookies that rest: on both stores, with the delay of Java's auditors, which is put back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from bkbox.base.ids import BookieId
from bkbox.errors import EncodingError
from bkbox.metadata import connect
from bkbox.metadata.base import MetadataStore
from bkbox.metadata.maintenance import (
    MaintenanceWindow,
    begin,
    decode,
    encode,
    end,
    end_expired,
    in_maintenance,
)

A, B = BookieId("a.example.com:3181"), BookieId("b:3181")


def on(uri: str, scenario: Callable[[MetadataStore, MetadataStore], Awaitable[None]]) -> None:
    async def go() -> None:
        async with await connect(uri) as one, await connect(uri) as other:
            await scenario(one, other)

    asyncio.run(go())


async def delay_s(store: MetadataStore) -> int | None:
    found = await store.under_replication.recovery_delay()
    return None if found is None else found.seconds


def test_a_rest_is_seen_by_all_and_ends_by_itself(uri: str) -> None:
    async def scenario(one: MetadataStore, other: MetadataStore) -> None:
        assert await in_maintenance(one.maintenance_windows, 0) == frozenset()
        await begin(one.maintenance_windows, A, 60, now_ms=1_000)
        await begin(one.maintenance_windows, B, 5, now_ms=1_000)
        assert await in_maintenance(other.maintenance_windows, 5_999) == {A, B}
        assert await in_maintenance(other.maintenance_windows, 6_000) == {A}
        assert await in_maintenance(other.maintenance_windows, 61_000) == frozenset()
        await begin(other.maintenance_windows, A, 120, now_ms=1_000)
        assert await in_maintenance(one.maintenance_windows, 120_999) == {A}
        assert await end(one.maintenance_windows, A, now_ms=2_000)
        assert not await end(one.maintenance_windows, A, now_ms=2_000)
        assert await in_maintenance(other.maintenance_windows, 2_000) == {B}
        await end_expired(other.maintenance_windows, now_ms=6_000)
        assert await one.maintenance_windows.all() == {}

    on(uri, scenario)


def test_the_delay_of_javas_auditors_is_raised_and_put_back_with_the_last_rest(uri: str) -> None:
    async def scenario(one: MetadataStore, other: MetadataStore) -> None:
        is_java = one.maintenance_windows.java is not None
        await one.under_replication.set_recovery_delay_s(10)
        await begin(one.maintenance_windows, A, 60, now_ms=0)
        assert await delay_s(other) == (60 if is_java else 10)
        await begin(other.maintenance_windows, B, 90, now_ms=0)
        await begin(other.maintenance_windows, A, 30, now_ms=0)
        assert await delay_s(one) == (90 if is_java else 10)
        await end(one.maintenance_windows, B, now_ms=1)
        assert await delay_s(one) == (90 if is_java else 10), "one more rests"
        await end_expired(one.maintenance_windows, now_ms=29_999)
        assert await delay_s(one) == (90 if is_java else 10)
        await end_expired(one.maintenance_windows, now_ms=30_000)
        assert await delay_s(one) == 10
        assert await one.maintenance_windows.all() == {}

    on(uri, scenario)


def test_what_an_operator_has_set_meanwhile_is_left(uri: str) -> None:
    async def scenario(one: MetadataStore, _other: MetadataStore) -> None:
        await begin(one.maintenance_windows, A, 60, now_ms=0)
        await one.under_replication.set_recovery_delay_s(7)
        await end(one.maintenance_windows, A, now_ms=1)
        assert await delay_s(one) == 7
        await one.under_replication.set_recovery_delay_s(3_600)
        before = await one.under_replication.recovery_delay()
        await begin(one.maintenance_windows, A, 60, now_ms=0)
        await end(one.maintenance_windows, A, now_ms=1)
        assert await one.under_replication.recovery_delay() == before, (
            "it is long enough: writing it again would tell Java's auditor to begin"
        )

    on(uri, scenario)


def test_a_rest_is_its_bytes() -> None:
    for rest in (MaintenanceWindow(5), MaintenanceWindow(2**50, 60, 10)):
        assert decode(encode(rest)) == rest


@pytest.mark.parametrize("data", [b"", b"[]", b'{"format": 2}', b'{"format": 1, "until_ms": "1"}'])
def test_bytes_that_are_no_rest_are_refused(data: bytes) -> None:
    with pytest.raises(EncodingError, match="maintenance window"):
        decode(data)
