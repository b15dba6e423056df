"""Checks of vectors about paths in a metadata tree, and of whole trees that Java tools left."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from bkbox.errors import EncodingError
from bkbox.wire.metadata import layout, paths, underreplication
from bkbox.wire.metadata.paths import PathLayout
from tests.vectors.common import Case, Check, differ, must_fail

_TREE_ROOT = "/ledgers"


def path_checks(root: str) -> dict[str, Check]:
    """The checks of a file about paths below this root, by group."""
    return {
        "ledger_paths": lambda case: _check_ledger_path(root, case),
        "ledger_path_parsing": lambda case: _check_path_parsing(root, case),
        "underreplication_paths": lambda case: _check_underreplication_path(root, case),
        "id_generation": lambda case: _check_id_generation(root, case),
    }


def _check_ledger_path(root: str, case: Case) -> Iterator[str]:
    form = PathLayout(case["layout"])
    yield from differ("path", case["path"], paths.ledger_path(root, form, case["ledger_id"]))
    yield from _check_read_back(root, form, case["path"], case["id_read_back"])


def _check_read_back(
    root: str, form: PathLayout, path: str, expected: int | str | None
) -> Iterator[str]:
    if expected in (None, "error"):
        yield from must_fail(path, EncodingError, lambda: paths.ledger_of_path(root, form, path))
    else:
        yield from differ("ledger id", expected, paths.ledger_of_path(root, form, path))


def _check_path_parsing(root: str, case: Case) -> Iterator[str]:
    form = PathLayout(case["layout"])
    if "path" in case:
        yield from _check_read_back(root, form, case["path"], case["ledger_id"])
        return
    name = case["top_name"]
    found = paths.is_ledger_parent(form, name)
    yield from differ("is_ledger_parent", case["is_ledger_parent"], found)
    yield from differ("is_special", case["is_special"], paths.is_special(name))


def _check_underreplication_path(root: str, case: Case) -> Iterator[str]:
    ledger = case["ledger_id"]
    lock = paths.underreplicated_lock_path(root, ledger)
    yield from differ("path", case["path"], paths.underreplicated_path(root, ledger))
    yield from differ("lock_path", case["lock_path"], lock)
    for path in (case["path"], case["lock_path"]):
        yield from differ("ledger id", ledger, paths.ledger_of_underreplicated(path))


def _check_id_generation(root: str, case: Case) -> Iterator[str]:
    if "prefix" in case:
        long = re.search("/HOB-([0-9]+)/ID-$", case["prefix"])
        flat = "flat" in case["description"]
        form = PathLayout.FLAT if flat else PathLayout.HIERARCHICAL
        made = paths.long_id_prefix(root, int(long[1])) if long else paths.id_prefix(root, form)
        yield from differ("prefix", case["prefix"], made)
        return
    found = paths.generated_id(case["created_node"])
    yield from differ("ledger_id", case["ledger_id"], "overflow" if found is None else found)


# ---- trees ------------------------------------------------------------------------------------


def check_tree(case: Case) -> Iterator[str]:
    """Payloads that are given literally are what we would write, and every name is known."""
    for node in case["nodes"]:
        path, data = node["path"], node["data"]
        top, _, rest = path.removeprefix(_TREE_ROOT).strip("/").partition("/")
        yield from differ(f"kind of {path}", node["kind"], _node_kind(top, rest))
        if top and not (
            paths.is_special(top)
            or paths.is_ledger_parent(PathLayout.HIERARCHICAL, top)
            or top == "disableHealthCheck"
        ):
            yield f"{path}: a name that no cluster has"
        if data and not data.startswith("<"):
            again = _WRITERS.get(_payload_of(top, rest))
            if again is None:
                yield f"{path}: a payload that is not known: {data!r}"
            else:
                yield from differ(path, data.encode(), again(data.encode()))


def _node_kind(top: str, rest: str) -> str:
    """Registrations and locks go with a session; votes and generated ids are numbered as well."""
    name = f"{top}/{rest}"
    if name.startswith("underreplication/auditorelection/V_") or "/ID-" in f"/{name}":
        return "ephemeral sequential"
    registered = top == "available" and rest not in ("", "readonly")
    locked = name.startswith("underreplication/locks/")
    return "ephemeral" if registered or locked else "persistent"


def _payload_of(top: str, rest: str) -> str:
    """The key of ``_WRITERS`` for a node."""
    if top != "underreplication":
        return top
    name, _, below = rest.partition("/")
    return f"{top}/{name}/*" if below else f"{top}/{name}"


def _write_layout(data: bytes) -> bytes:
    return layout.encode(layout.decode(data))


def _write_rereplication_layout(data: bytes) -> bytes:
    return underreplication.encode_layout(underreplication.decode_layout(data))


def _write_holder(data: bytes) -> bytes:
    return underreplication.encode_holder(underreplication.decode_holder(data))


def _write_mark(data: bytes) -> bytes:
    return underreplication.encode_ledger(underreplication.decode_ledger(data))


def _write_delay(data: bytes) -> bytes:
    return underreplication.encode_recovery_delay(underreplication.decode_recovery_delay(data))


_WRITERS: dict[str, Callable[[bytes], bytes]] = {
    "LAYOUT": _write_layout,
    "underreplication/LAYOUT": _write_rereplication_layout,
    "underreplication/auditorelection": _write_holder,
    "underreplication/auditorelection/*": _write_holder,
    "underreplication/locks/*": _write_holder,
    "underreplication/ledgers/*": _write_mark,
    "underreplication/lostBookieRecoveryDelay": _write_delay,
}
