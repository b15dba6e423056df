"""The arguments of each kind of job: one table, from which requests are checked and the OpenAPI document is made.

An argument is a text. A kind that is not in the table is started by the bookie alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bkbox.base.ids import bookie_id, ledger_id
from bkbox.base.text import quoted
from bkbox.errors import BadRequestError, DiskChangeError, InvalidIdError
from bkbox.jobs.job import JobKind

_YES, _NO = "true", "false"
_RATIO = re.compile(r"0(\.[0-9]{1,9})?|1(\.0{1,9})?")
_RATIO_MIN = 0.01


class _WrongValueError(ValueError):
    """Its text is appended to the argument's name and value."""


def _flag(text: str) -> str:
    if text not in (_YES, _NO):
        raise _WrongValueError(f"has to be {quoted(_YES)} or {quoted(_NO)}")
    return text if text == _YES else ""


def _ledger(text: str) -> str:
    try:
        return str(ledger_id(text))
    except InvalidIdError as error:
        raise _WrongValueError(str(error)) from None


def _ledgers(text: str) -> str:
    return ",".join(map(_ledger, text.split(",")))


def _bookie(text: str) -> str:
    try:
        return bookie_id(text)
    except InvalidIdError as error:
        raise _WrongValueError(str(error)) from None


def _ratio(text: str) -> str:
    if _RATIO.fullmatch(text) is None or float(text) < _RATIO_MIN:
        raise _WrongValueError(f"has to be a number from {_RATIO_MIN} to 1, such as '0.3'")
    return text


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument. ``parse`` gives the value for the job's code, empty for one that counts as absent. ``schema``:
    its JSON Schema.
    """

    doc: str
    schema: Mapping[str, Any]
    parse: Callable[[str], str] = str
    required: bool = False
    is_disk: bool = False


def _flag_of(doc: str) -> Argument:
    return Argument(doc, {"enum": [_YES, _NO]}, _flag)


def _disk_of(doc: str, *, required: bool = False) -> Argument:
    return Argument(f"{doc}, by path or uuid.", {"minLength": 1}, required=required, is_disk=True)


ARGUMENTS: Mapping[JobKind, Mapping[str, Argument]] = {
    JobKind.RECOVERY: {
        "ledger": Argument(
            "Id of the ledger.", {"pattern": "^[0-9]{1,19}$"}, _ledger, required=True
        )
    },
    JobKind.REPLICATION: {},
    JobKind.DRAIN: {"disk": _disk_of("The disk to be emptied", required=True)},
    JobKind.DECOMMISSION: {
        "bookie": Argument(
            "Id of the bookie to be taken out.", {"minLength": 1}, _bookie, required=True
        ),
        "delete_cookie": _flag_of("Delete its cookie at the end."),
    },
    JobKind.COMPACTION: {
        "disk": _disk_of("Only this disk"),
        "garbage_ratio": Argument(
            "Instead of compaction_garbage_ratio.", {"pattern": f"^({_RATIO.pattern})$"}, _ratio
        ),
    },
    JobKind.GC: {
        "dry_run": _flag_of("Only count."),
        "all": _flag_of("Look at every ledger, whether this bookie is still to hold it."),
        "empty_trash": _flag_of("Do not wait for gc_trash_s."),
        "compact": _flag_of("Give the room back afterwards."),
    },
    JobKind.SCRUB: {
        "disk": _disk_of("Only this disk"),
        "restart": _flag_of("From the beginning, wherever the last pass has come."),
        "disks_only": _flag_of("Without the comparison with other bookies."),
    },
    JobKind.AUDIT: {},
    JobKind.CHECK: {
        "ledgers": Argument(
            "Only these ledgers: their ids, with commas between.",
            {"pattern": "^[0-9]{1,19}(,[0-9]{1,19})*$"},
            _ledgers,
        ),
        "all": _flag_of(
            "Also ledgers that were complete at the last check and have not changed since."
        ),
    },
}
"""``limbo`` is started by the bookie when needed, ``rebuild`` is part of a start."""


def checked_arguments(
    kind: JobKind, arguments: Mapping[str, str], disk_uuid: Callable[[str], str]
) -> dict[str, str]:
    """The arguments for the job's code; ``kind`` is in the table. ``disk_uuid``: of the bookie's disk with this path
    or uuid; raises DiskChangeError for any other.

    BadRequestError names everything that is wrong.
    """
    known, problems = ARGUMENTS[kind], []
    found: dict[str, str] = {}
    usage = f"a {kind} job takes {', '.join(known) or 'none'}"
    for name, text in arguments.items():
        if name not in known:
            problems.append(f"unknown argument {quoted(name[:40])}; {usage}")
            continue
        try:
            value = disk_uuid(text) if known[name].is_disk else known[name].parse(text)
        except (_WrongValueError, DiskChangeError) as error:
            problems.append(f"{name} is {quoted(text[:80])}: {error}")
        else:
            if value:
                found[name] = value
    problems += [
        f"{name} is missing: {argument.doc}"
        for name, argument in known.items()
        if argument.required and name not in arguments
    ]
    if problems:
        raise BadRequestError(f"body.arguments: {'; '.join(problems)}")
    return found


def request_schema() -> dict[str, Any]:
    """JSON Schema of a request that starts a job: one object for each kind."""
    return {"oneOf": [_variant(kind, known) for kind, known in ARGUMENTS.items()]}


def _variant(kind: JobKind, known: Mapping[str, Argument]) -> dict[str, Any]:
    needed = [name for name, argument in known.items() if argument.required]
    arguments = {
        "type": "object",
        "properties": {
            name: {"type": "string", **argument.schema, "description": argument.doc}
            for name, argument in known.items()
        },
        "required": needed,
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "title": kind.value,
        "properties": {"kind": {"const": kind.value}, "arguments": arguments},
        "required": ["kind", "arguments"] if needed else ["kind"],
        "additionalProperties": False,
    }
