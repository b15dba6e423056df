"""What a client takes from a bookie: answers to adds, batches of entries, single entries with their digests."""

from __future__ import annotations

import struct
from types import SimpleNamespace

from bkbox.errors import DigestError, FrameError
from bkbox.wire import v2
from bkbox.wire.codes import Code
from bkbox.wire.digest import DigestManager
from bkbox.wire.metadata.ledger import DigestType
from tests.fuzz.kernels import alike
from tests.fuzz.target import Target, hex_in, vectors
from tests.fuzz.targets.frames import exact, plain_answers

LEDGER = 5
DIGESTS = {kind: DigestManager(LEDGER, kind, b"secret") for kind in DigestType}


# ---- answers to adds --------------------------------------------------------------------------------


def check_adds(data: bytes) -> object:
    """Whole frames to somebody who has sent a few adds to two ledgers: each closes one of them, or is refused."""
    return alike(lambda kernel: _matched(kernel, data)), alike(
        lambda kernel: _matched(kernel, data, three=True)
    )


def _matched(kernel: SimpleNamespace, data: bytes, *, three: bool = False) -> object:
    answers = kernel.add_responses
    outstanding = {ledger: answers.OutstandingAdds() for ledger in (1, 2)}
    outstanding[1].push(5, 6)
    outstanding[1].push_each((5, 9, 1 << 40))
    outstanding[2].push(0, 2)
    found: list[tuple[object, int, int, int]] = []
    area = exact(data)
    end: object = 0
    whole = answers.whole_frames(area, 0, len(data), 4096)
    try:
        if three:
            plain = kernel.v3_fast_path.FastResponseV3()
            end = answers.match_v3(area, 0, whole, outstanding, found, plain)
        else:
            end = answers.match_v2(area, 0, whole, outstanding, found)
    except FrameError as error:
        end = str(error)
    slots = [(one is outstanding[1], slot) for one, a, b, _ in found for slot in range(a, b + 1)]
    assert len(set(slots)) == len(slots), "one add was answered twice"
    assert not any(outstanding[1 if first else 2].is_open(slot) for first, slot in slots)
    if not three and isinstance(end, int):
        assert len(slots) == end // 28
    return end, sorted(slots), [code for *_, code in found]


def _add_answers() -> list[bytes]:
    made = []
    for ledger, entry in ((1, 5), (1, 6), (1, 1 << 40), (2, 0), (2, 1), (3, 0)):
        made.append(v2.encode_response(v2.AddResponse(2, Code.EOK, ledger, entry)))
    return [*plain_answers(), *made, b"".join(made[:5]), b"".join(made)]


# ---- batches of entries -----------------------------------------------------------------------------


def check_batch(data: bytes) -> object:
    """Entries after their sizes: the kernel finds those that are right, as the codec and the digests do."""
    body = bytes(32) + data
    sound = alike(lambda kernel: kernel.batch_reads.check_sizes(body, 32))
    if sound is not None:
        return "sizes"
    counts = []
    for kind, digests in DIGESTS.items():
        expected = _one_by_one(digests, data)
        assert digests.verify_batch(body, 32, 0, 3) == expected
        if kind in (DigestType.CRC32C, DigestType.DUMMY):
            size = digests.digest_size
            taken = alike(
                lambda kernel, size=size: kernel.batch_reads.verified(  # type: ignore[misc]
                    body, 32, LEDGER, 0, 3, size, tuple
                )
            )
            assert taken == [tuple(entry) for entry in expected]
        counts.append(len(expected))
    return tuple(counts)


def _one_by_one(digests: DigestManager, data: bytes) -> list[object]:
    found: list[object] = []
    at = 0
    while at < len(data) and len(found) < 3:
        (size,) = struct.unpack_from(">i", data, at)
        at += 4 + size
        try:
            found.append(digests.verify(data[at - size : at], len(found)))
        except DigestError:
            break
    return found


def _batches() -> list[bytes]:
    made = []
    for digests in DIGESTS.values():
        entries = [digests.package(entry, entry - 1, 3, b"abc") for entry in range(4)]
        made.append(b"".join(struct.pack(">i", len(entry)) + entry for entry in entries))
    return [*made, *(each[: len(each) // 2] for each in made), b"", b"\0\0\0\0"]


# ---- digests ----------------------------------------------------------------------------------------


def check_digest(data: bytes) -> object:
    """What verifies is exactly what would be made; a changed bit never is."""
    way: list[object] = []
    for kind, digests in DIGESTS.items():
        way.append(_verified(digests, data))
        try:
            lac = digests.verify_lac(data)
        except DigestError:
            continue
        assert digests.package_lac(lac) == data
        way.append(kind)
    return tuple(way)


def _verified(digests: DigestManager, data: bytes) -> bool:
    try:
        entry = digests.verify(data, None)
    except DigestError:
        return False
    assert digests.package(entry.entry_id, entry.lac, entry.length, entry.payload) == data
    if digests.digest_size:
        changed = bytearray(data)
        changed[len(data) // 2] ^= 1
        try:
            digests.verify(changed, None)
        except DigestError:
            return True
        raise AssertionError("a changed bit was not seen")
    return True


def _entries() -> list[bytes]:
    made = list(hex_in(vectors("digests.json"), "entry"))
    for digests in DIGESTS.values():
        made += [
            digests.package(3, 2, 5, b"hello"),
            digests.package_lac(7),
            digests.package(0, -1, 0, b""),
        ]
    return made


TARGETS = (
    Target("answers", "answers to adds of both versions", _add_answers, check_adds),
    Target("batches", "answers to batch reads, by digest", _batches, check_batch, 0.5),
    Target("digests", "entries and explicit LACs, by digest", _entries, check_digest, 0.5),
)
