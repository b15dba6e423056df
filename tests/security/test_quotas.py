"""Quotas as they are written, what is said of wrong ones, and who is over."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkbox.config.load import load
from bkbox.config.schema import Config
from bkbox.errors import ConfigError
from bkbox.security.quotas import Quotas, Use, parse_quota

LEAST = 'listen = "127.0.0.1:3181"\nmetadata = "sqlite:cluster.db"\ndisks = ["a"]\n'


@pytest.mark.parametrize(
    ("text", "owner", "size"),
    [
        ("analytics=500G", "analytics", 500 << 30),
        (" a b = 2 TiB ", "a b", 2 << 40),
        ("*=1500m", "*", 1500 << 20),
        ("team=a=7K", "team=a", 7 << 10),
        ("(none)=1", "(none)", 1),
        ("x=12B", "x", 12),
        ("größer=8191P", "größer", 8191 << 50),
    ],
)
def test_what_is_understood(text: str, owner: str, size: int) -> None:
    assert parse_quota(text) == (owner, size)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("analytics", "form OWNER=SIZE"),
        ("=5G", "form OWNER=SIZE"),
        (f"{'x' * 257}=5G", "form OWNER=SIZE"),
        ("analytics=", "not a size"),
        ("analytics=-1", "not a size"),
        ("analytics=1.5T", "not a size"),
        ("analytics=٣", "not a size"),
        ("analytics=5GB", "'GB' is none of the units K, M, G, T and P"),
        ("analytics=5X", "'X' is none of the units"),
        ("analytics=0", "from 1 byte"),
        ("analytics=8192P", "to 8191P"),
    ],
)
def test_what_is_not(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ValueError, match=r"OWNER=SIZE|size|units|byte") as caught:
        parse_quota(text)
    assert why in str(caught.value)
    file = tmp_path / "bookie.toml"
    file.write_text(f'{LEAST}quotas = ["a=1G", "{text}"]\n')
    with pytest.raises(ConfigError) as refused:
        load(file, {})
    [problem] = refused.value.problems
    assert f"{file}:4: quotas" in problem
    assert why in problem


def test_an_owner_that_is_named_twice(tmp_path: Path) -> None:
    file = tmp_path / "bookie.toml"
    file.write_text(f'{LEAST}quotas = ["a=1G", "*=2G", "a=1T"]\n')
    with pytest.raises(ConfigError, match="quotas names 'a' twice: leave one of them"):
        load(file, {})
    config = load_set(tmp_path, 'quotas = ["a=1G", "*=2G"]\nquota_interval_s = 5')
    assert (config.quotas, config.quota_interval_s) == (("a=1G", "*=2G"), 5.0)


def load_set(folder: Path, lines: str) -> Config:
    file = folder / "good.toml"
    file.write_text(f"{LEAST}{lines}\n")
    return load(file, {})


def test_who_is_over() -> None:
    quotas = Quotas(["a=100", "b=100", "*=50"])
    used = {"a": 99, "b": 100, "c": 49, "(none)": 51}
    assert quotas.evaluate(used) == [
        Use("(none)", 51, 50),
        Use("b", 100, 100),
        Use("a", 99, 100),
        Use("c", 49, 50),
    ]
    assert [use.owner for use in quotas.evaluate(used) if use.is_over] == ["(none)", "b"]
    assert Quotas(["a=1K"]).evaluate({"c": 1 << 40}) == [Use("a", 0, 1 << 10)], "c has no bound"
    assert not Quotas()
    assert Quotas(["a=1"])
    assert Quotas(["*=1"])
