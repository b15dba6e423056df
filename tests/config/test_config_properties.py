"""Files of properties as Java writes them: each thing that they may have in them, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkbox.config.java_properties import Property, parse
from bkbox.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("a=b", "a", "b"),
        ("a = b ", "a", "b"),
        ("  a:b", "a", "b"),
        ("a b c", "a", "b c"),
        ("a", "a", ""),
        ("a=", "a", ""),
        ("a==b", "a", "=b"),
        ("a = /x,\\\n    /y,\\\n\t/z", "a", "/x,/y,/z"),
        ("a = one \\\n  two", "a", "one two"),
        ("a = back\\\\", "a", "back\\"),
        ("a\\ b = c", "a b", "c"),
        ("a\\=b = c", "a=b", "c"),
        ("a = t\\tn\\nu\\u00e9", "a", "t\tn\nué"),
        ("a = not#a comment", "a", "not#a comment"),
        ("a = x\\\n# y", "a", "x# y"),
        ("a=1\na=2", "a", "1,2"),
    ],
)
def test_one_property(text: str, key: str, value: str) -> None:
    found = parse(text, "f")
    assert found == {key: Property(key, value, 1)}


def test_comments_and_empty_lines_count_as_lines_and_nothing_else() -> None:
    found = parse("# a=1\n\n ! b=2\n c=3\\\n 4\nd=5", "f")
    assert found == {"c": Property("c", "34", 4), "d": Property("d", "5", 6)}


def test_lists() -> None:
    assert parse("a = /x , /y,,", "f")["a"].items() == ["/x", "/y"]


def test_what_is_elsewhere_is_refused_with_its_place() -> None:
    with pytest.raises(ConfigError) as caught:
        parse("include = more.conf\na = ${base}/x\n=3\n", "bk.conf")
    assert caught.value.problems == [
        "bk.conf:1: include is not followed: put the files together first",
        "bk.conf:2: a is made of another value: put '${base}/x' in full",
        "bk.conf:3: '=3' is not of the form key=value",
    ]


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        for key, found in parse(text, "f").items():
            assert key == found.key
            assert 1 <= found.line <= max(1, len(text.splitlines()))
    except ConfigError:
        pass
