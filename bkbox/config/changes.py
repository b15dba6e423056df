"""The difference between two configurations, and the part of it that a running bookie can apply."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from bkbox.base.text import quoted
from bkbox.base.values import frozen_struct
from bkbox.config.schema import SCHEMA, Config, is_live
from bkbox.errors import ConfigError


@frozen_struct
class Change:
    """A changed key: values in the form of TOML and JSON, and the source of the new one."""

    key: str
    before: object
    after: object
    source: str

    @property
    def live(self) -> bool:
        """True if a running bookie can apply it."""
        return is_live(SCHEMA[self.key])


def between(before: Config, after: Config) -> list[Change]:
    """The keys whose values differ, in the order of the schema."""
    old, new = before.values(), after.values()
    return [
        Change(key, old[key], new[key], after.provenance[key])
        for key in SCHEMA
        if old[key] != new[key]
    ]


def applied(before: Config, after: Config, changes: Sequence[Change]) -> Config:
    """``before`` with the changes towards ``after``. Raises ConfigError if one of them needs a restart. Then none is
    applied: a partly applied configuration is one that the operator has not written."""
    fixed = [change for change in changes if not change.live]
    if fixed:
        raise ConfigError(
            [
                f"{change.source}: {change.key} cannot change while the bookie runs: restart it, or put back "
                f"{quoted(change.before)}"
                for change in fixed
            ]
            + ["nothing was changed"]
        )
    values = {change.key: getattr(after, change.key) for change in changes}
    places = {change.key: change.source for change in changes}
    return dataclasses.replace(before, **values, provenance={**before.provenance, **places})
