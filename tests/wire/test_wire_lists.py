"""Availability lists, write sets and paths beyond the golden vectors."""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkbox.base.ids import MAX_ID, BookieId, EntryId, LedgerId
from bkbox.errors import EncodingError
from bkbox.wire import availability
from bkbox.wire.metadata import paths
from bkbox.wire.metadata.ledger import Fragment, LedgerMetadata, LedgerState
from bkbox.wire.metadata.paths import PathLayout
from bkbox.wire.write_set import expected_entries, in_write_set, last_final_entry, write_set


@given(st.sets(st.integers(0, 60)))
def test_availability_returns(entries: set[int]) -> None:
    made = availability.availability_of(sorted(entries))
    found = availability.decode(availability.encode(made))
    assert list(found) == sorted(entries)
    assert found.total == len(entries)
    assert {entry for entry in range(-1, 62) if entry in found} == entries


def test_runs_are_written_as_they_are() -> None:
    assert availability.encode_runs([(0, 3), (10, 12)]) == availability.encode(
        availability.availability_of([0, 1, 2, 3, 10, 11, 12])
    )
    assert availability.encode_runs([]) == bytes(64)


def _runs(entries: set[int]) -> list[tuple[int, int]]:
    groups = availability.availability_of(sorted(entries)).groups
    return [(group.first_start, group.end - 1) for group in groups]


@given(st.sets(st.integers(0, 60) | st.integers(2**40, 2**40 + 30) | st.integers(0, 2**62)))
def test_folded_runs_are_the_same_entries(entries: set[int]) -> None:
    found = availability.decode(availability.encode_folded(_runs(entries)))
    assert set(found) == entries
    assert found.total == len(entries)


@pytest.mark.parametrize(("ensemble_size", "write_quorum"), [(2, 1), (3, 2), (5, 3), (7, 2)])
def test_a_stripe_folds_into_a_few_groups(ensemble_size: int, write_quorum: int) -> None:
    for position in range(ensemble_size):
        held = {e for e in range(1000) if in_write_set(e, position, ensemble_size, write_quorum)}
        found = availability.decode(availability.encode_folded(_runs(held)))
        assert len(found.groups) <= 3
        assert all((entry in found) == (entry in held) for entry in range(1000))


@pytest.mark.parametrize("encode", [availability.encode_runs, availability.encode_folded])
def test_a_run_longer_than_a_group_can_say(encode: Callable[..., bytes]) -> None:
    last = 5_000_000_000
    found = availability.decode(encode([(3, last), (last + 2, last + 2)]))
    assert found.total == last - 1
    inside = {3, 1 << 31, 1 << 32, last, last + 2}
    assert {entry for entry in inside | {2, last + 1, last + 3} if entry in found} == inside


def test_an_id_that_comes_back_loses_nothing() -> None:
    assert set(availability.availability_of([4, 5, 0, 4])) == {0, 4, 5}


def test_interleaved_groups() -> None:
    groups = (availability.Group(0, 20, 1, 10), availability.Group(5, 15, 2, 10))
    found = availability.decode(availability.encode(availability.Availability(groups)))
    assert {entry for entry in range(30) if entry in found} == {0, 5, 6, 10, 15, 16, 20}


@pytest.mark.parametrize(
    "group",
    [(-1, -1, 1, 0), (0, 0, 0, 0), (0, 5, 1, 0), (0, 5, 1, 2), (5, 0, 1, 5), (0, 4, 3, 2)],
)
def test_groups_that_cannot_be(group: tuple[int, int, int, int]) -> None:
    with pytest.raises(EncodingError):
        availability.decode(struct.pack(">ii56xqqii", 0, 1, *group))


def test_lists_that_are_not_whole() -> None:
    whole = availability.encode_runs([(0, 3)])
    for size in (0, 63, 87):
        with pytest.raises(EncodingError):
            availability.decode(whole[:size])
    with pytest.raises(EncodingError):
        availability.decode(struct.pack(">ii56x", 0, -1))


# ---- write sets -------------------------------------------------------------------------------


@given(st.integers(0, MAX_ID), st.integers(1, 12), st.data())
def test_write_sets(entry: int, ensemble_size: int, data: st.DataObject) -> None:
    write_quorum = data.draw(st.integers(1, ensemble_size))
    found = write_set(entry, ensemble_size, write_quorum)
    assert found[0] == entry % ensemble_size
    assert all((b - a) % ensemble_size == 1 for a, b in pairwise(found))
    assert len(set(found)) == write_quorum
    assert set(found) == {
        position
        for position in range(ensemble_size)
        if in_write_set(entry, position, ensemble_size, write_quorum)
    }


def test_a_ledger_in_recovery_is_settled_up_to_its_last_fragment() -> None:
    a, b = BookieId("a:1"), BookieId("b:1")
    metadata = LedgerMetadata(
        LedgerId(1), 1, 1, 1, LedgerState.IN_RECOVERY,
        (Fragment(EntryId(0), (a,)), Fragment(EntryId(3), (b,)), Fragment(EntryId(5), (a,))),
    )  # fmt: skip
    assert last_final_entry(metadata) == 4
    assert list(expected_entries(metadata, a)) == [0, 1, 2]
    assert list(expected_entries(metadata, b)) == [3, 4]


# ---- paths ------------------------------------------------------------------------------------


@given(st.integers(0, MAX_ID), st.sampled_from(PathLayout))
def test_paths_return(ledger: int, layout: PathLayout) -> None:
    if layout is PathLayout.LEGACY_HIERARCHICAL:
        ledger %= 10**10
    path = paths.ledger_path("/some/root", layout, ledger)
    assert paths.ledger_of_path("/some/root", layout, path) == ledger
    mark = paths.underreplicated_path("/some/root", ledger)
    assert paths.ledger_of_underreplicated(mark) == ledger


@pytest.mark.parametrize("layout", PathLayout)
@pytest.mark.parametrize(
    "path",
    ["", "/", "/ledgers", "/ledgers/", "/other/00/0000/L0001", "/ledgers/999/9999/9999/9999/L9999",
     "/ledgers/L99999999999999999999", "/ledgers/0/0/0/L1"],
)  # fmt: skip
def test_paths_that_are_no_ledgers(layout: PathLayout, path: str) -> None:
    with pytest.raises(EncodingError):
        paths.ledger_of_path("/ledgers", layout, path)


def test_generated_ids() -> None:
    assert paths.generated_id("/l/idgen/ID--2147483648") is None
    assert paths.generated_id("/l/idgen-long/HOB-0000000001/ID-2147483647") is None
    assert paths.long_id_prefix("/l", 2) == "/l/idgen-long/HOB-0000000002/ID-"
    with pytest.raises(EncodingError):
        paths.generated_id("/l/idgen/XX-0000000001")
    with pytest.raises(EncodingError):
        paths.ledger_of_underreplicated("/l/underreplication/LAYOUT")
    assert PathLayout.FLAT.factory_class.endswith(".FlatLedgerManagerFactory")
