"""Suggested command lines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bkbox.base.commandline import (
    bookie_command,
    cluster_command,
    plain_command,
    set_origin,
    shortened,
)


@pytest.fixture(autouse=True)
def _no_origin() -> Iterator[None]:
    set_origin()
    yield
    set_origin()


def test_without_an_origin_a_command_has_no_options() -> None:
    assert str(bookie_command("job", "show", 7)) == "bkbox job show 7"
    assert f"see `{cluster_command('cluster', 'info')}`" == "see `bkbox cluster info`"


def test_a_configuration_is_named_by_both_kinds() -> None:
    later = bookie_command("status")
    set_origin(config="/data/bookie.toml")
    assert str(later) == "bkbox status --config /data/bookie.toml"
    assert str(cluster_command("top")) == "bkbox top --config /data/bookie.toml"
    assert str(plain_command("discover")) == "bkbox discover"


def test_a_metadata_store_is_named_by_commands_about_the_cluster_alone() -> None:
    set_origin(metadata="zk://a:2181;b:2181/ledgers")
    assert str(cluster_command("top")) == "bkbox top --metadata 'zk://a:2181;b:2181/ledgers'"
    assert str(bookie_command("status")) == "bkbox status"


def test_a_configuration_that_is_found_is_left_out_also_of_what_a_bookie_says() -> None:
    set_origin(config="/etc/bkbox/my bookie.toml", is_found=True)
    assert str(bookie_command("status")) == "bkbox status"
    said = "job 3 failed: `bkbox job show 3 --config '/etc/bkbox/my bookie.toml'` says why"
    assert shortened(said) == "job 3 failed: `bkbox job show 3` says why"
    other = "bkbox job show 3 --config /etc/bkbox/other.toml"
    assert shortened(other) == other


def test_words_are_quoted_for_a_shell() -> None:
    set_origin(config="/data/my bookie.toml")
    line = str(bookie_command("disk", "replace", "/data/it's", "NEW_FOLDER"))
    assert (
        line == """bkbox disk replace '/data/it'"'"'s' NEW_FOLDER --config '/data/my bookie.toml'"""
    )
