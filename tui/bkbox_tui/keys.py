"""All keys of the screen, in one table: bindings, footer, help and the command palette are made from it."""

from __future__ import annotations

from dataclasses import dataclass

EVERYWHERE: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Key:
    """A key and its action. ``panels``: those where it is active, empty for all; ``in_footer``: shown there."""

    key: str
    action: str
    label: str
    help: str
    panels: tuple[str, ...] = EVERYWHERE
    in_footer: bool = False
    on_live_only: bool = False


PANELS = (
    ("overview", "Overview", "Is it safe, what is it doing, how long, what do I do next."),
    (
        "disks",
        "Disks",
        "Each disk: room, state, ledgers, its worker, and where the time of its adds goes.",
    ),
    (
        "limbo",
        "Limbo",
        "Ledgers that may lack entries here, and what keeps them from being repaired.",
    ),
    ("jobs", "Jobs", "Long work: repair, drain, compaction, scrub; its pace and its end."),
    (
        "cookies",
        "Cookies",
        "What binds disks, metadata store and configuration; what differs, how to mend it.",
    ),
    (
        "cluster",
        "Cluster",
        "All bookies of the cluster: state, fill, rates, latency, limbo, jobs, deletions; asked every second.",
    ),
    ("events", "Events", "What changed since this screen was opened."),
    (
        "diagnostics",
        "Diagnostics",
        "Processes, and every configuration key with where its value comes from.",
    ),
)
"""Name, title and purpose of each panel; the first is shown first, and the digits select them in this order."""

_LISTINGS = ("limbo", "cluster")

KEYS = (
    *(
        Key(str(number), f"panel('{name}')", title, text)
        for number, (name, title, text) in enumerate(PANELS, start=1)
    ),
    Key("tab", "next_panel", "Next", "The next panel."),
    Key("shift+tab", "previous_panel", "Previous", "The panel before."),
    Key("question_mark", "help", "Help", "The keys of this panel.", in_footer=True),
    Key(
        "enter",
        "explain",
        "Explain",
        "Which bookie has what of the ledger, and what blocks its recovery.",
        ("limbo",),
        in_footer=True,
        on_live_only=True,
    ),
    Key(
        "enter",
        "open",
        "Open",
        "Show the bookie under the cursor on all panels; escape leads back.",
        ("cluster",),
        in_footer=True,
        on_live_only=True,
    ),
    Key(
        "slash",
        "filter",
        "Filter",
        "Show only rows that contain a text.",
        _LISTINGS,
        in_footer=True,
    ),
    Key("s", "sort", "Sort", "Sort by the next column.", _LISTINGS, in_footer=True),
    Key(
        "e",
        "severity",
        "Severity",
        "Show only events as bad as this or worse.",
        ("events",),
        in_footer=True,
    ),
    Key(
        "p",
        "pause_job",
        "Pause",
        "Pause the job, or let it go on.",
        ("jobs",),
        in_footer=True,
        on_live_only=True,
    ),
    Key(
        "r",
        "rate_job",
        "Rate",
        "Set the speed limit of the job.",
        ("jobs",),
        in_footer=True,
        on_live_only=True,
    ),
    Key(
        "x",
        "cancel_job",
        "Cancel",
        "End the job; its id has to be typed.",
        ("jobs",),
        in_footer=True,
        on_live_only=True,
    ),
    Key(
        "y",
        "copy",
        "Copy",
        "Copy the first command that is advised to the clipboard.",
        in_footer=True,
    ),
    Key("escape", "leave", "Back", "End filters; then go back to the bookie of the beginning."),
    Key(
        "space",
        "freeze",
        "Freeze",
        "Stop looking, or go on: the screen stays as it is meanwhile.",
        in_footer=True,
    ),
    Key(
        "w",
        "record",
        "Record",
        "Write all that is seen from now on to a file, or end that.",
        on_live_only=True,
    ),
    Key("f12", "picture", "Picture", "Write the screen as it is to a file, as SVG."),
    Key("f5", "refresh", "Look now", "Do not wait for the next second."),
    Key("t", "theme", "Theme", "The next of: dark, light, the terminal's own colours."),
    Key("q", "quit", "Quit", "Leave; the bookie is not touched.", in_footer=True),
)


def keys_of(panel: str) -> list[Key]:
    """The keys that are active on a panel."""
    return [key for key in KEYS if not key.panels or panel in key.panels]


_NAMES = {"question_mark": "?", "slash": "/", "space": "space", "shift+tab": "shift+tab"}


def shown(key: str) -> str:
    """The name of a key as printed on a keyboard."""
    return _NAMES.get(key, key)
