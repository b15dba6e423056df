"""The summary page of an audit, made from its tables: ``summary.md``, ``summary.html`` with a picture
(``summary.svg``), and ``metrics.prom`` for collectors of metrics from files (node_exporter's textfile collector)."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bkbox.audit.run import FINDINGS, Summary, read_summary
from bkbox.audit.tables import read_table, rows_of
from bkbox.base.logs.control import in_one_line
from bkbox.base.text import counted

_SHOWN = 20

MEANINGS = {
    "no_copy": "entries that no bookie can give: every copy is missing, damaged, gone or withheld in limbo",
    "blocked": "open ledgers that cannot be recovered: too many of their bookies are in limbo or gone",
    "missing": "entries that a bookie has to hold and says that it has not",
    "corrupt": "copies whose digest is wrong",
    "divergent": "entries whose copies differ, each with a good digest",
    "unreadable": "copies that a bookie has and cannot read",
    "under_replicated": "ledgers that lack copies",
    "orphaned": "ledgers that a bookie has and no metadata know",
    "unknown": "copies of which no bookie said anything: not missing, not there",
    "limbo": "ledgers of which a bookie says that it does not know what it has of them",
    "ended": "ledgers that an operator ended with loss accepted, and what each lost",
}


@dataclass(frozen=True)
class _Table:
    """Presentation of one table."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    left_out: int = 0


def write_report(folder: Path) -> None:
    """Writes the page into the folder of the results. Raises OperatorError for a folder without them."""
    summary = read_summary(folder)
    tables = _tables(folder, summary)
    verdict = verdict_of(summary)
    (folder / "summary.md").write_text(_markdown(verdict, summary, tables))
    picture = _picture(folder, summary)
    (folder / "summary.svg").write_text(picture)
    (folder / "summary.html").write_text(_html(verdict, summary, tables, picture))
    (folder / "metrics.prom").write_text(_metrics(summary))


def verdict_of(summary: Summary) -> str:
    """The verdict as one line for operators."""
    rows = summary.rows
    found = []
    if rows["no_copy"]:
        entries = counted(summary.faults["no_copy"], "entry")
        verb = "has" if summary.faults["no_copy"] == 1 else "have"
        found.append(f"{entries} of {counted(rows['no_copy'], 'ledger')} {verb} no readable copy")
    if rows["blocked"]:
        found.append(f"{counted(rows['blocked'], 'open ledger')} cannot be recovered")
    others = [name for name in FINDINGS if name not in ("no_copy", "blocked") and rows[name]]
    if others:
        found.append(f"found rows: {', '.join(f'{rows[name]:,} {name}' for name in others)}")
    caveats = []
    if rows["limbo"]:
        verb = "is" if rows["limbo"] == 1 else "are"
        caveats.append(f"{counted(rows['limbo'], 'copy')} of ledgers {verb} in limbo")
    if rows["unknown"] or summary.unanswered_probes:
        caveats.append("not every bookie answered")
    if caveats:
        clean = "" if found else "nothing is known to be wrong, but "
        found.append(f"{clean}{' and '.join(caveats)}, so there may be more")
    if rows["ended"]:
        found.append(f"losses accepted before: {rows['ended']:,}")
    if summary.is_clean and summary.is_certain:
        found.insert(0, "nothing is wrong")
    return "; ".join(found)


def _facts(summary: Summary) -> list[tuple[str, str]]:
    began = datetime.fromtimestamp(summary.started_ms / 1000, UTC)
    per_second = summary.entries / summary.seconds if summary.seconds else 0
    return [
        ("cluster", summary.cluster),
        ("begun", began.strftime("%Y-%m-%d %H:%M:%S UTC")),
        ("took", f"{summary.seconds:,.1f} s with engine {summary.engine}"),
        (
            "looked at",
            f"{counted(summary.ledgers, 'ledger')}, {counted(summary.entries, 'entry')} of closed ones",
        ),
        ("speed", f"{per_second:,.0f} entries/s"),
        (
            "read",
            f"{counted(summary.copies_read, 'copy')}, {counted(summary.bytes_read, 'byte')}"
            + ("" if summary.read_all else " (lists of entries where bookies give them)"),
        ),
        ("bookies that are there", f"{summary.bookies:,}"),
        ("ids probed for orphans", f"{summary.ids_probed:,}"),
    ]


def _tables(folder: Path, summary: Summary) -> list[_Table]:
    counts = [
        (name, f"{summary.rows[name]:,}", f"{summary.faults.get(name, summary.rows[name]):,}", text)
        for name, text in MEANINGS.items()
    ]
    found = [_Table("What was found", ("table", "rows", "entries or ledgers", "meaning"), counts)]
    for name in (*MEANINGS, "copies_per_rack", "bytes_per_owner"):
        data = read_table(folder, name)
        if data.num_rows:
            shown = [tuple(map(_cell, row)) for row in rows_of(name, data.slice(0, _SHOWN))]
            left = max(data.num_rows - _SHOWN, 0)
            found.append(_Table(name.replace("_", " "), data.column_names, shown, left))
    if summary.unanswered_probes:
        rows = [(bookie, f"{count:,}") for bookie, count in summary.unanswered_probes.items()]
        found.append(_Table("probes that no bookie answered", ("bookie", "ids"), rows))
    return found


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    return f"{value:,}" if isinstance(value, int) and value >= 100_000 else str(value)


# ---- Markdown -------------------------------------------------------------------------------------


def _markdown(verdict: str, summary: Summary, tables: Sequence[_Table]) -> str:
    lines = ["# Audit", "", f"**{verdict}**", ""]
    lines += [f"- {name}: {_markdown_text(text)}" for name, text in _facts(summary)]
    for table in tables:
        lines += ["", f"## {table.title}", "", "| " + " | ".join(table.columns) + " |"]
        lines.append("|" + "---|" * len(table.columns))
        for row in table.rows:
            lines.append("| " + " | ".join(_markdown_text(str(cell)) for cell in row) + " |")
        if table.left_out:
            lines += ["", f"and {counted(table.left_out, 'row')} more in the table itself"]
    return "\n".join(lines) + "\n"


_MARKS = {ord(mark): f"\\{mark}" for mark in r"\`*_[]|~$"}
_MARKS |= {ord("<"): "&lt;", ord(">"): "&gt;", ord("&"): "&amp;"}


def _markdown_text(text: str) -> str:
    """Escapes untrusted text for Markdown: it becomes neither HTML nor a link, an image or a cell of its own."""
    return in_one_line(text).translate(_MARKS).replace("://", "\\://")


# ---- HTML -----------------------------------------------------------------------------------------

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em; color: #1b1f24 }
h1, h2 { font-weight: 600 } .ok { color: #136c34 } .bad { color: #a3261b }
table { border-collapse: collapse; font-size: 13px } td, th { padding: .25em .8em; text-align: left;
border-bottom: 1px solid #d8dde3; overflow-wrap: anywhere } svg { max-width: 100%; height: auto }
""".strip()


def _escaped(text: str) -> str:
    """Escapes untrusted text for HTML and SVG."""
    return html.escape(in_one_line(text))


def _html(verdict: str, summary: Summary, tables: Sequence[_Table], picture: str) -> str:
    kind = "ok" if summary.is_clean and summary.is_certain else "bad"
    parts = [
        "<!doctype html>",
        f'<html lang="en"><meta charset="utf-8"><title>bkbox audit</title><style>{_STYLE}</style>',
        f'<h1>Audit</h1><p class="{kind}"><strong>{_escaped(verdict)}</strong></p><table>',
        *(
            f"<tr><th>{_escaped(name)}</th><td>{_escaped(text)}</td></tr>"
            for name, text in _facts(summary)
        ),
        f"</table>{picture}",
    ]
    for table in tables:
        parts.append(f"<h2>{_escaped(table.title)}</h2><table><tr>")
        parts += [f"<th>{_escaped(column)}</th>" for column in table.columns]
        for row in table.rows:
            cells = "".join(f"<td>{_escaped(str(cell))}</td>" for cell in row)
            parts.append(f"</tr><tr>{cells}")
        parts.append("</tr></table>")
        if table.left_out:
            parts.append(f"<p>and {counted(table.left_out, 'row')} more in the table itself</p>")
    return "\n".join(parts) + "</html>\n"


# ---- picture --------------------------------------------------------------------------------------

_WIDTH, _LEFT, _BAR, _STEP = 760, 190, 430, 22


def _picture(folder: Path, summary: Summary) -> str:
    """Bar charts: findings, copies per rack, bytes per owner."""
    found = [(name, summary.faults.get(name, summary.rows[name])) for name in MEANINGS]
    racks = [
        (row.rack, row.copies)
        for row in rows_of("copies_per_rack", read_table(folder, "copies_per_rack"))
    ]
    owners = [
        (row.owner, row.stored_bytes)
        for row in rows_of("bytes_per_owner", read_table(folder, "bytes_per_owner").slice(0, 8))
    ]
    groups = [
        ("found", found, True),
        ("copies per rack", racks, False),
        ("bytes per owner", owners, False),
    ]
    parts: list[str] = []
    y = 10
    for title, bars, is_bad in groups:
        y += _STEP
        parts.append(f'<text x="8" y="{y}" font-weight="600">{_escaped(title)}</text>')
        largest = max([value for _, value in bars], default=0) or 1
        for name, value in bars:
            y += _STEP
            width = round(_BAR * value / largest) if value else 0
            colour = "#b5382c" if is_bad else "#2f6fab"
            parts.append(f'<text x="24" y="{y}">{_escaped(name[:22])}</text>')
            if value:
                parts.append(
                    f'<rect x="{_LEFT}" y="{y - 12}" width="{max(width, 2)}" height="14" fill="{colour}"/>'
                )
            parts.append(f'<text x="{_LEFT + width + 8}" y="{y}">{value:,}</text>')
        y += 8
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y + 12}" width="{_WIDTH}" '
        f'height="{y + 12}" font-family="sans-serif" font-size="13">'
    )
    background = f'<rect width="{_WIDTH}" height="{y + 12}" fill="#ffffff"/>'
    return "\n".join([head, background, *parts, "</svg>"]) + "\n"


# ---- metrics --------------------------------------------------------------------------------------


def _metrics(summary: Summary) -> str:
    lines = [
        "# HELP bkbox_audit_rows Rows of a result table of the last audit.",
        "# TYPE bkbox_audit_rows gauge",
        *(f'bkbox_audit_rows{{table="{name}"}} {summary.rows[name]}' for name in MEANINGS),
    ]
    for name, text, value in (
        ("ledgers", "Ledgers that the last audit looked at.", summary.ledgers),
        ("entries", "Entries of closed ledgers that the last audit looked at.", summary.entries),
        ("seconds", "How long the last audit took.", summary.seconds),
        ("started_seconds", "When the last audit began (Unix time).", summary.started_ms / 1000),
    ):
        lines += [
            f"# HELP bkbox_audit_{name} {text}",
            f"# TYPE bkbox_audit_{name} gauge",
            f"bkbox_audit_{name} {value}",
        ]
    return "\n".join(lines) + "\n"
