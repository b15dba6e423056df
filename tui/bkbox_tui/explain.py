"""Explains a ledger as `bkbox ledger explain` does: which bookie has what, what prevents recovery, what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bkbox.base.text import counted
from bkbox.wire.metadata.loss import LossRecord
from bkbox_tui.formatting import amount


def explained(view: Mapping[str, Any]) -> str:
    """``view``: the document of `bkbox ledger explain -o json`."""
    lines = [
        f"what to do: {view['advice']}",
        "",
        f"{view['state']}, ensemble {view['ensemble_size']}, write quorum {view['write_quorum']}, "
        f"ack quorum {view['ack_quorum']}",
        f"recovery: {view['recovery']}",
    ]
    if view["reason"]:
        lines.append(f"blocked by: {view['reason']}")
    lines += [f"[X] {LossRecord(**each).text}" for each in view.get("losses", ())]
    for each in view["fragments"]:
        lines += ["", *_fragment(each)]
    lines += ["", *map(_bookie, view["bookies"])]
    if view["answers"]:
        lines.append("")
    lines += [f"entry {each['entry']}: {each['bookie']} {each['says']}" for each in view["answers"]]
    return "\n".join(lines)


def _fragment(each: Mapping[str, Any]) -> list[str]:
    last = "nothing yet" if each["last_entry"] is None else each["last_entry"]
    lines = [f"entries {each['first_entry']} to {last} on {', '.join(each['ensemble'])}"]
    if each["below_write_quorum"]:
        lines.append(
            f"    {amount(each['below_write_quorum'])} have fewer copies than the write quorum, "
            f"{amount(each['below_ack_quorum'])} than the ack quorum"
        )
    if each["on_no_bookie"]:
        lines.append(f"    [X] no bookie has {_ranges(each['on_no_bookie'])}")
    if each["not_known_to_be_anywhere"]:
        lines.append(f"    [?] no bookie can tell of {_ranges(each['not_known_to_be_anywhere'])}")
    return lines


def _bookie(each: Mapping[str, Any]) -> str:
    name = each["bookie"]
    if not each["alive"]:
        return f"[?] {name}: does not answer ({each['answers']}); what it has is unknown"
    has = "what it has is unknown" if each["entries"] is None else counted(each["entries"], "entry")
    last = "" if each["last_entry"] is None else f", the last {each['last_entry']}"
    limbo = ", in limbo: what it lacks is unknown" if each["limbo"] else ""
    fenced = {True: ", fenced", False: "", None: ", fenced or not"}[each["fenced"]]
    return f"[{'~' if each['limbo'] else '+'}] {name}: {has}{last}{fenced}{limbo}"


def _ranges(pairs: Iterable[tuple[int, int]]) -> str:
    return ", ".join(f"{first}" if first == last else f"{first} to {last}" for first, last in pairs)
