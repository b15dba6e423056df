"""Mutants that nobody can tell from the right code, each with the reason."""

from __future__ import annotations

SAME: dict[tuple[str, str], str] = {
    (
        "unacked_positions",
        "last <= upto  ->  last < upto",
    ): "where they are equal, the lines below leave the watermark where it is",
    (
        "unacked_positions",
        "for entry in range(first, last + 1) if self._stripes(position, entry)"
        "  ->  for entry in range(first, last + 1) if True",
    ): "entries of others are never asked for",
    (
        "unacked_positions",
        "len(self._write_sets[0]) < self._size  ->  len(self._write_sets[0]) <= self._size",
    ): "every stripe has the same write set then: slower, the same answer",
    (
        "unacked_positions",
        "-1  ->  -2",
    ): "a watermark below the LAC is never asked for, and that is -1 at least",
    (
        "unacked_positions",
        "first > self._following(position, upto)  ->  first >= self._following(position, upto)",
    ): "what comes next is then kept as what came out of order: slower, the same answers",
    (
        "repair",
        "strict=True  ->  strict=False",
    ): "both are made to the same length in the line before",
    (
        "repair",
        "run[0] >= wanted.stop  ->  run[0] > wanted.stop",
    ): "where they are equal, the lines below yield the same range and end the loop",
}
"""(module, what was changed) -> why it is the same."""
