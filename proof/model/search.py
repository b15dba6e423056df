"""A whole search: breadth first until a property is violated or no state is left, with statistics and the trace.

Levels are counted in states, the first one included: a state of level 3 is two steps away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from bkbox.base.values import frozen_struct
from proof.model.exploration import Exploration
from proof.model.options import Options
from proof.model.properties import Properties, Safety
from proof.model.space import PackedState, Space
from proof.model.trace import Line, lines_of

_AT_ONCE = 1 << 18


@dataclass(frozen=True, slots=True)
class Statistics:
    """``queue``: states found and not expanded yet. ``seconds``: since the start."""

    distinct: int
    generated: int
    levels: int
    queue: int
    seconds: float


@frozen_struct
class Result:
    """``broken``: the name of a violated property, and ``trace``, the shortest way there."""

    statistics: Statistics
    exhausted: bool
    broken: str | None = None
    trace: tuple[Line, ...] = ()


def search(
    options: Options,
    *,
    fold: bool = False,
    states_max: int | None = None,
    properties: Properties | None = None,
    progress: Callable[[Statistics], None] = lambda _: None,
) -> Result:
    """Searches the states of a configuration, ``states_max`` at most. Raises QuorumSizeError if its sizes do not
    fit."""
    checked = properties or Safety(options)
    space = Space(options.checked(), checked, fold=fold)
    exploration = Exploration(space, space.layout(), *space.initial)
    starts = [0, 1]  # numbers of each level's first state, and of the next level's
    started_s = monotonic()
    explored = 0
    while explored < exploration.found and not exploration.broken:
        if states_max is not None and exploration.found >= states_max:
            break
        explored = exploration.run(min(explored + _AT_ONCE, starts[-1]))
        progress(_statistics(exploration, len(starts) - 1, explored, started_s))
        if explored == starts[-1] and exploration.found > explored and not exploration.broken:
            starts.append(exploration.found)
    if not exploration.broken:
        statistics = _statistics(exploration, len(starts) - 1, explored, started_s)
        return Result(statistics, exhausted=explored == exploration.found)
    # The last state found is one step beyond the level that was being expanded.
    statistics = _statistics(exploration, len(starts), explored, started_s)
    path = _path_to(exploration, starts)
    return Result(
        statistics,
        exhausted=False,
        broken=checked.names[exploration.broken - 1],
        trace=tuple(lines_of(space, exploration.representative, path)),
    )


def _statistics(
    exploration: Exploration, levels: int, explored: int, started_s: float
) -> Statistics:
    found = exploration.found
    return Statistics(
        found, exploration.generated, levels, found - explored, monotonic() - started_s
    )


def _path_to(exploration: Exploration, starts: list[int]) -> list[PackedState]:
    """From the first state to the last one found: in each level before, one that the next state follows."""
    state = exploration.state(exploration.found - 1)
    path = [state]
    for first, end in zip(reversed(starts[:-1]), reversed(starts[1:]), strict=True):
        state = exploration.state(exploration.parent(*state, first, end))
        path.append(state)
    return path[::-1]
