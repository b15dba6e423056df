"""A short run over every target, and everything that longer ones have found.

The seed is fixed, so that a run does not depend on luck; ``FUZZ_SEED`` is another. Long runs: ``python -m tests.fuzz``.
"""

from __future__ import annotations

import gc
import logging
import os
import random
import tracemalloc
from collections.abc import Iterator

import pytest

from bkbox.frontend.overload.overload_responses import without_entries
from bkbox.wire import v2
from tests.fuzz.engine import Mutator, run
from tests.fuzz.kernels import IN_USE, INTERPRETED, alike
from tests.fuzz.target import Choices
from tests.fuzz.targets import TARGETS

SEED = int(os.environ.get("FUZZ_SEED") or 1)
INPUTS = 1_500
MEMORY_INPUTS = 300
MEMORY_BYTES = 64 << 10

FOUND: list[tuple[str, bytes, str]] = [
    ("paths", b"/ledgers/L" + b"1" * 5000, "a number of more digits than Python reads: ValueError"),
    ("paths", b"/ledgers/underreplication/urL" + b"1" * 5000, "the same in the path of a mark"),
    (
        "paths",
        b"/ledgers/idgen-long/HOB-9999999999/ID-0000000001",
        "a generated id that no ledger can have was given out",
    ),
    ("config", b"a = " + b"[" * 3000, "brackets in brackets: RecursionError of the TOML reader"),
    (
        "documents",
        b'\x00\x01{"format": 1, "x": ' + b"[" * 2000,
        "the same of the JSON reader, under a right checksum",
    ),
    (
        "documents",
        b'\x00\x01{"format": Infinity}',
        "a version that is no whole number: OverflowError",
    ),
    (
        "runs",
        bytes((8, 0)) + bytes.fromhex("0200000500000003000000000000004000000028"),
        "a run that ends beyond the largest entry id: OverflowError from the compiled kernel",
    ),
    (
        "runs",
        bytes((0, 0)) + bytes.fromhex("0200000100000003ff0000000000004000000028"),
        "a run at an offset that is negative for the compiled kernel only",
    ),
    (
        "runs",
        bytes.fromhex(
            "090002010005000000030000000000000040000000280000000000000002000000040000000600000000"
        ),
        "a run whose ids go back at its end: the others passed the largest id, for the compiled kernel below zero",
    ),
    (
        "replay",
        bytes.fromhex("0000010004000105090a010309000106090701000000"),
        "a LEDGER record of three bytes that verifies: struct.error at the start",
    ),
    (
        "bookie",
        bytes.fromhex("0100000109000000000100000109060100010500"),
        "a batch read of the last possible entry: its answer was what the slot held before, of whoever",
    ),
    (
        "bookie",
        bytes.fromhex("010000010900000000010000010906030001050000"),
        "the same in version 1: OverflowError, the end of the disk's worker",
    ),
    (
        "frames-v2",
        bytes.fromhex("8d03fa000a047361736c1200"),
        "an authentication of version 128 or more could be read and not be written: struct.error",
    ),
    (
        "streams",
        bytes.fromhex("1400000018420200000000000100000000010000000000feffffffffffff"),
        "the refusal of version 0x42 of version 2, which looks like version 3 by its first byte",
    ),
    (
        "replies",
        bytes.fromhex(
            "02070000002f0a0f0803100218ffffffffffffffffff0110f803aa061808f80310ffffffffffffffff7f18"
            "ffffffffffffffffff01"
        ),
        "an answer of version 3 with a number beyond 2^63 - 1: OverflowError in the client's connection",
    ),
    (
        "replies",
        bytes.fromhex("00000000001802010000ff00000000000000000000010000000000000005"),
        "an answer to an add with a code that nobody knows: that add, and those answered with it, never ended",
    ),
    ("messages", b"\3\0\0\0{}", "a control message without a type: KeyError"),
    ("messages", b"\1", "a control message that is cut short: struct.error"),
]
"""Target, input, and what it was."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """What a bookie logs of damaged disks is no news here."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", TARGETS)
def test_inputs_that_nobody_would_write(name: str) -> None:
    target = TARGETS[name]
    report = run(target, max(60, int(INPUTS * target.part)), SEED)
    for finding in report.findings[:1]:
        pytest.fail(f"seed {SEED}, target {name}, input {finding.data.hex()}\n{finding.text}")


@pytest.mark.parametrize(("name", "data", "what"), FOUND, ids=range(len(FOUND)))
def test_what_was_found_before(name: str, data: bytes, what: str) -> None:
    assert what
    TARGETS[name].check(data)


@pytest.mark.parametrize("name", TARGETS)
def test_memory_does_not_grow(name: str) -> None:
    """The same inputs again and again leave nothing behind."""
    target = TARGETS[name]
    seeds = target.seeds()
    mutator = Mutator(seeds, random.Random(SEED))
    inputs = [mutator.next() for _ in range(max(20, int(MEMORY_INPUTS * target.part)))]
    sizes = []
    tracemalloc.start()
    try:
        for _ in range(3):
            for data in inputs:
                target.check(data)
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert sizes[2] - sizes[1] < MEMORY_BYTES, f"seed {SEED}: {sizes}"


def test_both_kernels_are_asked() -> None:
    """A difference between them is seen, where there are two."""
    assert not INTERPRETED.compiled
    if not IN_USE.compiled:
        pytest.skip("there is no compiled kernel")
    with pytest.raises(AssertionError, match="interpreted False, compiled True"):
        alike(lambda kernel: kernel.compiled)


def test_a_run_is_repeated_by_its_seed() -> None:
    made = [
        [Mutator([b"one", b"other"], random.Random(5)).next() for _ in range(1)] for _ in range(2)
    ]
    assert made[0] == made[1]
    assert Choices(b"\x05\x06").below(4) == 1


@pytest.mark.parametrize("version", [3, 7, 8, 10, 0x42, 255])
@pytest.mark.parametrize("opcode", [1, 2, 7])
def test_refusals_of_other_versions_can_wait_for_a_slow_client(version: int, opcode: int) -> None:
    """One that was waiting ended the front-end: it repeats the version, and was taken for version 3 by that byte."""
    refused = v2.encode_response(v2.bad_version_response(v2.BadVersion(version, opcode, 1, 2, 3)))
    found = without_entries(refused)
    assert found == refused
