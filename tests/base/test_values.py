"""@frozen_struct against what a frozen dataclass does; @struct."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from bkbox.base.values import as_dict, field, frozen_struct, replaced, struct


@frozen_struct
class Point:
    """A point."""

    x: int
    y: int = 0

    @property
    def sum(self) -> int:
        return self.x + self.y


@frozen_struct
class Other:
    x: int
    y: int = 0


@frozen_struct
class Single:
    only: object


@struct
class Count:
    of: str
    number: int = 0
    seen: list[int] = field(default_factory=list)


def test_fields_by_place_by_name_and_by_default() -> None:
    assert (Point(1, 2).x, Point(x=1, y=2).y, Point(1).y, Point(1, 2).sum) == (1, 2, 0, 3)
    for arguments in ({}, {"x": 1, "z": 2}):
        with pytest.raises(TypeError):
            Point(**arguments)
    with pytest.raises(TypeError):
        Point(1, 2, 3)  # type: ignore[call-arg]


def test_equal_are_values_of_one_class_with_equal_fields() -> None:
    assert Point(1, 2) == Point(1, 2)
    assert Point(1, 2) != Point(1, 3)
    assert Point(1, 2) != Other(1, 2)
    assert Point(1, 2) != (1, 2)
    assert Single((1,)) == Single((1,))
    assert Single((1,)) != Single(1)
    assert len({Point(1, 2), Point(1, 2), Other(1, 2)}) == 2


def test_it_reads_like_a_dataclass() -> None:
    def shown(cls: type) -> str:
        return repr(cls(1, "a"))

    @dataclass(frozen=True, slots=True)
    class Same:
        x: int
        y: str

    plain = shown(Same)

    @frozen_struct
    class Same:  # type: ignore[no-redef]
        x: int
        y: str

    assert shown(Same) == plain
    assert Point.__doc__ == "A point."
    assert Point.__module__ == __name__


def test_no_other_attributes() -> None:
    with pytest.raises(AttributeError):
        Point(1).z = 3  # type: ignore[attr-defined]
    assert not hasattr(Point(1), "__dict__")


def test_match_and_replaced() -> None:
    match Point(1, 2):
        case Point(x, y=2):
            assert x == 1
        case _:
            pytest.fail("not matched")
    assert replaced(Point(1, 2), y=5) == Point(1, 5)


def test_a_struct_may_change_and_equals_itself_only() -> None:
    one, other = Count("x"), Count("x")
    assert one != other
    assert len({one, other}) == 2
    one.number += 1
    one.seen.append(3)
    assert (other.number, other.seen) == (0, []), "a default of its own"
    assert Count("x", 1, [4]).seen == [4]
    assert as_dict(one) == {"of": "x", "number": 1, "seen": [3]}
