"""docs/api.md, made from the docstrings: ``python -m tests.client.apipage`` writes it."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
from pathlib import Path
from typing import Any

from bkbox import client, errors
from bkbox.client import log, sync
from bkbox.client.connection import bookie_health
from bkbox.client.log import handler

PAGE = Path(__file__).parents[2] / "docs" / "api.md"

HEAD = """# Client API

Made from the docstrings by `python -m tests.client.apipage`; a test compares. What the parts are for, and how they
are used: [client.md](client.md).

"""

SECTIONS: dict[str, tuple[str, list[Any]]] = {
    "bkbox.client": (
        "`bkbox.connect` is `bkbox.client.connect`.",
        [
            client.connect,
            client.Client,
            client.LedgerWriter,
            client.LedgerReader,
            client.Entry,
            client.ClientOptions,
            client.LedgerMetadata,
            client.LedgerState,
            client.DigestType,
            bookie_health.Health,
        ],
    ),
    "bkbox.client.log": (
        "",
        [
            log.Log,
            log.LogWriter,
            log.LogOptions,
            log.Record,
            log.Position,
            log.LogInfo,
            log.LostLedger,
            log.Compression,
            log.LeaderElection,
            log.LogFile,
            log.logs,
            handler.BookKeeperHandler,
        ],
    ),
    "bkbox.client.sync": (inspect.getdoc(sync) or "", []),
    "bkbox.errors": (inspect.getdoc(errors) or "", []),
}


def page() -> str:
    parts = [HEAD]
    for module, (text, things) in SECTIONS.items():
        parts.append(f"## {module}\n\n")
        if text:
            parts.append(_prose(text) + "\n\n")
        parts += map(_thing, things)
    parts.append(f"### BkboxError\n\n{_prose(inspect.getdoc(errors.BkboxError) or '')}\n\n")
    parts += map(_kind_of_error, _cases(errors.BkboxError))
    return re.sub(r"\n{3,}", "\n\n", "".join(parts)).rstrip("\n") + "\n"


def _kind_of_error(kind: type[errors.BkboxError]) -> str:
    parts = [f"### {kind.__name__}\n\n{_prose(inspect.getdoc(kind) or '')}\n\n"]
    for error in leaves(kind):
        bases = [base.__name__ for base in error.__bases__ if base is not kind]
        named = f"{error.__name__}({', '.join(bases)})" if bases else error.__name__
        text = _prose(inspect.getdoc(error) or "", indent="  ")
        if error.may_have_taken_effect:
            text += " `may_have_taken_effect`."
        parts.append(f"- **`{named}`** {text}\n")
    return "".join(parts) + "\n"


def leaves(kind: type[errors.BkboxError]) -> list[type[errors.BkboxError]]:
    """All errors of a kind, each behind the one that it is a case of."""
    return [each for child in _cases(kind) for each in (child, *leaves(child))]


def _cases(kind: type[errors.BkboxError]) -> list[type[errors.BkboxError]]:
    """Those of the tree itself: what other modules raise among themselves is no part of the interface."""
    return [each for each in kind.__subclasses__() if each.__module__ == errors.__name__]


def _thing(thing: Any) -> str:
    name = thing.__name__
    if not inspect.isclass(thing):
        return f"### {name}\n\n{_call(name, thing)}\n\n{_prose(inspect.getdoc(thing) or '')}\n\n"
    parts = [f"### {name}\n\n{_prose(_own_doc(thing))}\n\n"]
    if issubclass(thing, enum.Enum):
        parts.append(", ".join(f"`{each.name}`" for each in thing) + "\n\n")
        return "".join(parts)
    parts += _fields(thing)
    for member, value in vars(thing).items():
        call = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
        if member.startswith("_") or not (isinstance(value, property) or inspect.isfunction(call)):
            continue
        if member in dir(tuple) and issubclass(thing, tuple):
            continue
        if isinstance(value, property):
            said = f"- **`{member}`** {_prose(inspect.getdoc(value) or '', indent='  ')}"
        else:
            said = f"- {_call(member, call)}\n\n  {_prose(inspect.getdoc(call) or '', indent='  ')}"
        parts.append(said.rstrip() + "\n")
    return "".join(parts) + "\n"


def _own_doc(thing: type) -> str:
    text = thing.__doc__ or ""
    return "" if text.startswith(f"{thing.__name__}(") else inspect.cleandoc(text)


def _fields(thing: type) -> list[str]:
    """Those of a dataclass or a value, with the texts below them in the source."""
    names = list(getattr(thing, "__annotations__", ()))
    if not (
        dataclasses.is_dataclass(thing) or hasattr(thing, "_values") or hasattr(thing, "_fields")
    ):
        return []
    try:
        source = inspect.getsource(thing)
    except (OSError, TypeError):
        source = ""
    parts = []
    for name in names:
        found = re.search(
            rf"^    {name}: (.+?)(?: = (.+?))?\n(?:    \"\"\"(.+?)\"\"\")?", source, re.M | re.S
        )
        kind, default, text = found.groups() if found else ("", None, None)
        shown = f"`{name}: {kind}`" if kind else f"`{name}`"
        if default is not None:
            shown = f"`{name}: {kind} = {default}`"
        parts.append(
            f"- **{shown}** {_prose(inspect.cleandoc(text or ''), indent='  ')}".rstrip() + "\n"
        )
    return [*parts, "\n"] if parts else []


def _call(name: str, call: Any) -> str:
    signature = re.sub(r"\b(?:self|cls)(?:, )?", "", str(inspect.signature(call)), count=1)
    signature = re.sub(
        r"(?<=: )'([^']*)'|(?<=-> )'([^']*)'", lambda found: found[1] or found[2], signature
    )
    signature = re.sub(r"<(\w+\.\w+): \d+>", r"\1", signature)
    before = "async " if inspect.iscoroutinefunction(call) else ""
    return f"**`{before}{name}{signature}`**"


def _prose(text: str, indent: str = "") -> str:
    """Restructured text as Markdown: what is in double backquotes, and blocks that ``::`` begins."""
    text = text.replace("``", "`")
    lines, in_code, out = text.splitlines(), False, []
    for line in lines:
        if line.rstrip() == "::":
            in_code = True
            out.append("```python")
            continue
        if in_code and line and not line.startswith("    "):
            while not out[-1]:
                out.pop()
            out.append("```\n")
            in_code = False
        if in_code and not line and out[-1] == "```python":
            continue
        out.append(line[4:] if in_code else line)
    if in_code:
        out.append("```")
    if any(re.fullmatch(r"=+(  =+)+", line) for line in lines):
        return "```\n" + "\n".join(out) + "\n```"
    return "\n".join(
        [out[0] if out else "", *(f"{indent}{line}".rstrip() for line in out[1:])]
    ).rstrip()


if __name__ == "__main__":
    PAGE.write_text(page())
