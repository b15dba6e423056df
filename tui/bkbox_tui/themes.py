"""The colours: one accent, and the colours of states, which nothing else has; on a dark and on a light ground."""

from __future__ import annotations

from textual.theme import Theme

DARK = Theme(
    name="bkbox-dark",
    primary="#3b82c4",
    secondary="#8a94a6",
    accent="#5aa9e6",
    success="#5fb878",
    warning="#e6b450",
    error="#e5606e",
    dark=True,
)
LIGHT = Theme(
    name="bkbox-light",
    primary="#1f6fb2",
    secondary="#5b6472",
    accent="#1f6fb2",
    success="#2e7d4f",
    warning="#9a6700",
    error="#b3261e",
    background="#f6f7f9",
    surface="#eceff3",
    panel="#dde3ea",
    foreground="#1c2733",
    dark=False,
)
NAMES = (DARK.name, LIGHT.name, "ansi-dark")
"""In the order in which a key goes through them; the last has the colours of the terminal."""
