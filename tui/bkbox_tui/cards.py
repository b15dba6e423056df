"""The cards of the overview: from the view to lines of text, each within the width that is asked for. Pure.

A line is a sequence of parts, each with the name of its style: "" for ordinary text, "muted", "strong", or a Level's.
Figures have fields of a fixed width, so that nothing moves when they change.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence

from bkbox.api.admin.status import DiskStatus, Process, Status
from bkbox.base.text import counted
from bkbox.jobs.job import JobKind, JobState
from bkbox_tui.answers import Answers, at_work
from bkbox_tui.charts import bar, top, trend
from bkbox_tui.events import Event, Severity
from bkbox_tui.formatting import Level, amount, micros, size, span
from bkbox_tui.history import DiskHistory, History
from bkbox_tui.processes import name_of
from bkbox_tui.snapshot import DiskFiles, Snapshot

Part = tuple[str, str]
Line = tuple[Part, ...]


def sign(level: Level) -> Part:
    return f"[{level.sign}]", level.style


def cut(text: str, width: int) -> str:
    """At most ``width`` characters; the end is left out."""
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def cut_path(path: str, width: int) -> str:
    """At most ``width`` characters; the beginning is left out."""
    return path if len(path) <= width else "…" + path[len(path) - width + 1 :]


# ---- verdict ------------------------------------------------------------------------------------


def verdict(answers: Answers, width: int, height: int) -> list[Line]:
    """Draws the safety and its reason, then the next steps as far as there is space. Their commands are never cut."""
    lines: list[Line] = [
        ((each, answers.level.style),) for each in _wrapped(answers.safe, width, 2)
    ]
    doing = f"{answers.doing}; {answers.how_long}"
    lines.append(((cut(doing, width), "muted"),))
    for number, (text, command) in enumerate(answers.next_steps):
        rows_left = height - len(lines)
        pasted = _wrapped(f"→ {command}", width, height) if command else []
        wrapped = _wrapped(text, width, max(1, rows_left - len(pasted)) if number == 0 else 2)
        if rows_left < len(wrapped) + len(pasted):
            break
        lines += [((each, ""),) for each in wrapped]
        lines += [((each, "strong"),) for each in pasted]
    return lines


def _wrapped(text: str, width: int, lines_max: int) -> list[str]:
    found = textwrap.wrap(text, width, break_on_hyphens=False) or [""]
    if len(found) <= lines_max:
        return found
    return [*found[: lines_max - 1], cut(" ".join(found[lines_max - 1 :]), width)]


# ---- limbo and jobs -----------------------------------------------------------------------------


def repair(snapshot: Snapshot | None, history: History, width: int, height: int) -> list[Line]:
    """Ledgers in limbo with their trend, the progress of their repair, and the other jobs at work."""
    if snapshot is None or snapshot.status is None:
        return [(("not known", "muted"),)]
    limbo = snapshot.status.limbo
    jobs = at_work(snapshot.jobs)
    mine = next((job for job in jobs if job.id == limbo.job or job.kind is JobKind.LIMBO), None)
    others = [job for job in jobs if job is not mine]
    if not limbo.ledgers:
        lines: list[Line] = [(sign(Level.GOOD), (" no ledger in limbo", ""))]
    else:
        stuck = limbo.stuck
        level = Level.BAD if stuck else Level.WARNING
        label = f" {amount(limbo.ledgers)} in limbo "
        space = min(60, max(0, width - 3 - len(label)))
        *above, last = trend(history.limbo, space, 4 if height >= 12 else 1)
        lines = [((" " * (3 + len(label)), ""), (each, level.style)) for each in above]
        lines.append((sign(level), (label, "strong"), (last, level.style)))
        share = limbo.done / (limbo.ledgers + limbo.done)
        lines.append(_progress(share, width, Level.BUSY))
        speed = "waits" if mine is None or not mine.rate.bytes else f"{size(mine.rate.bytes)}/s"
        left = "left unknown" if limbo.eta_s is None else f"{span(limbo.eta_s)} left"
        lines.append(((cut(f"{speed:<11} {left}", width), ""),))
        for number, blocker in enumerate(limbo.blockers[: max(1, (height - len(lines)) // 2)]):
            count = f"{stuck} stuck: " if number == 0 else ""
            lines.append(((cut(f"{count}{blocker.reason}", width), Level.BAD.style),))
            if height > 6:
                lines.append(((cut(f"→ {blocker.what_to_do}", width), ""),))
    short = snapshot.status.copies.short
    if short:
        lines.append((sign(Level.WARNING), (cut(f" {amount(short)} copies short", width - 3), "")))
    ended = snapshot.status.losses.ledgers
    if ended:
        label = f"{counted(ended, 'ledger')} ended with loss: panel 3"
        lines.append(((cut(label, width), "muted"),))
    if not others and not limbo.ledgers and not short:
        lines.append((("no job at work", "muted"),))
    for job in others[: max(0, (height - len(lines)) // 2)]:
        state = "" if job.state is JobState.RUNNING else f", {job.state.value}"
        time_left = "" if job.eta_s is None else f", {span(job.eta_s)} left"
        lines.append(((cut(f"{job.kind.value}{state}{time_left}", width), ""),))
        lines.append(
            _progress(None if job.percent is None else job.percent / 100, width, Level.BUSY)
        )
    return lines[:height]


def _progress(share: float | None, width: int, level: Level) -> Line:
    figure = "   ?" if share is None else f"{share:4.0%}"
    return ((bar(share, max(1, width - 5)), level.style), (f" {figure}", ""))


# ---- events -------------------------------------------------------------------------------------

_EVENT_LEVELS = {Severity.WARNING: Level.WARNING, Severity.ERROR: Level.BAD}


def events(found: Sequence[Event], width: int, height: int) -> list[Line]:
    """The last ones, the newest last."""
    if not found:
        return [(("nothing since the screen was opened", "muted"),)]
    return [_of_event(each, width) for each in list(found)[-height:]] if height > 0 else []


def _of_event(event: Event, width: int) -> Line:
    level = _EVENT_LEVELS.get(event.severity)
    mark: Part = ("[ ]", "") if level is None else sign(level)
    return (f"{event.at} ", "muted"), mark, (cut(f" {event.text}", width - 12), "")


# ---- traffic ------------------------------------------------------------------------------------

_LABEL, _NOW, _SCALE = 9, 10, 14
_CHART_MAX = 9


Series = tuple[str, Sequence[float], Callable[[float], str]]
"""A name, the points, and the text of one of them. The scale of one of shares ends at 1."""


def traffic(history: History, width: int, height: int) -> list[Line]:
    """Adds and reads a second and their p99."""
    series: tuple[Series, ...] = (
        ("adds", history.adds_per_s, _per_s),
        ("  p99", history.add_p99_us, _time),
        ("reads", history.reads_per_s, _per_s),
        ("  p99", history.read_p99_us, _time),
    )
    return _trends(series, width, height)


def disk_trends(history: DiskHistory, width: int, height: int) -> list[Line]:
    """Adds, reads and bytes a second of a disk, and how busy its device is."""
    series: tuple[Series, ...] = (
        ("adds", history.adds_per_s, _per_s),
        ("reads", history.reads_per_s, _per_s),
        ("bytes/s", history.bytes_per_s, size),
        ("busy", history.busy, _share),
    )
    return _trends(series, width, height)


def _trends(series: Sequence[Series], width: int, height: int) -> list[Line]:
    """Each with its trend, what it is now and the top of its scale."""
    tall = max(1, min(_CHART_MAX, height // len(series)))
    chart = max(1, width - _LABEL - _NOW - _SCALE)
    lines: list[Line] = []
    for label, points, format_value in series:
        now = format_value(points[-1]) if points else "-"
        most = 1.0 if format_value is _share else top(points, chart)
        for number, row in enumerate(trend(points, chart, tall, most)):
            is_last = number == tall - 1
            scale = f" max {format_value(most)}" if most and number == 0 else ""
            lines.append(
                (
                    (f"{label if is_last else '':<{_LABEL}}", "muted"),
                    (row, "accent"),
                    (f"{now if is_last else '':>{_NOW}}", "strong"),
                    (f"{scale:<{_SCALE}}", "muted"),
                )
            )
    return lines


def _share(share: float) -> str:
    return f"{share:.0%}"


def _per_s(count: float) -> str:
    return f"{amount(count)}/s"


def _time(us: float) -> str:
    return micros(us) if us else "-"


# ---- disks --------------------------------------------------------------------------------------


def disks(snapshot: Snapshot | None, history: History, width: int, height: int) -> list[Line]:
    """A line for each disk, the worst first."""
    if snapshot is None:
        return []
    status = snapshot.status
    if status is None:
        return [_of_files(each, width) for each in snapshot.files[:height]]
    ordered = sorted(status.disks, key=lambda disk: _ORDER.index(disk_level(disk)))
    shown = ordered if len(ordered) <= height else ordered[: height - 1]
    lines = [_of_disk(disk, status, history, width) for disk in shown]
    if len(shown) < len(ordered):
        bad = sum(disk_level(disk) is not Level.GOOD for disk in ordered[len(shown) :])
        more = f"and {len(ordered) - len(shown)} more, {bad} of them not well: panel 2"
        lines.append(((cut(more, width), "muted"),))
    return lines


_ORDER = (Level.BAD, Level.WARNING, Level.UNKNOWN, Level.BUSY, Level.GOOD)


def disk_level(disk: DiskStatus) -> Level:
    if disk.state == "failed":
        return Level.BAD
    if disk.state != "in service" or disk.read_only:
        return Level.WARNING
    return Level.BUSY if disk.draining else Level.GOOD


def _of_disk(disk: DiskStatus, status: Status, history: History, width: int) -> Line:
    level, wide = disk_level(disk), width >= 110
    extra = width - (99 if wide else 66)
    name = min(40, max(10, extra))
    cookie = cookie_level(status, disk.path)
    head: Line = (sign(level), (f" {cut_path(disk.path, name):<{name}} ", ""))
    tail: Line = ((" cookie ", "muted"), sign(cookie))
    if disk.state != "in service":
        space = max(1, width - name - 16)
        return (
            *head,
            (f"{cut(f'{disk.state}: {disk.reason}', space):<{space}}", level.style),
            *tail,
        )
    share = 1 - disk.free_bytes / disk.total_bytes if disk.total_bytes else None
    busy = history.busy.get(disk.disk)
    adds = f" {amount(disk.rates.adds):>6} adds/s"
    reads = f" {amount(disk.rates.reads):>6} reads/s {size(disk.rates.bytes):>8}/s written"
    does = f" {cut(disk.read_only[0], 13):>13}" if disk.read_only else adds
    fill = Level.BUSY if share is None or share < 0.9 else Level.WARNING
    return (
        *head,
        (bar(share, 6 + max(0, extra - name)), fill.style),
        ("    ?" if share is None else f" {share:4.0%}", ""),
        (f" {size(disk.free_bytes):>8} free", ""),
        (" busy ", "muted"),
        ("   -" if busy is None else f"{busy:4.0%}", ""),
        (does, level.style if disk.read_only else ""),
        *(((reads, ""),) if wide else ()),
        *tail,
    )


def cookie_level(status: Status, path: str) -> Level:
    """The state of the cookie on a disk, as it was compared last."""
    found = [each.same for each in status.cookies.fields if each.where == path]
    if not all(found):
        return Level.BAD
    return Level.GOOD if found or status.cookies.ok else Level.UNKNOWN


def _of_files(item: DiskFiles, width: int) -> Line:
    level = Level.BAD if item.problem else Level.UNKNOWN
    name = min(30, max(10, width // 3))
    detail = item.problem or item.marker
    path = f" {cut_path(item.path, name):<{name}} "
    return (sign(level), (path, ""), (cut(detail, width - name - 5), level.style))


# ---- processes ----------------------------------------------------------------------------------

_CELL = 36


def processes(status: Status | None, width: int, height: int) -> list[Line]:
    """The processes side by side, those in trouble first; healthy workers are one cell."""
    if status is None:
        return [(("none", "muted"),)]
    columns = max(1, (width + 2) // (_CELL + 2))
    alone = [
        each for each in status.processes if each.role != "worker" or _level(each) is not Level.GOOD
    ]
    workers = [each for each in status.processes if each not in alone]
    alone.sort(key=lambda each: _ORDER.index(_level(each)))
    cells = [_process(each, status) for each in alone]
    if workers:
        cells.append(
            _cell(
                Level.GOOD, f"{len(workers)} workers" if len(workers) > 1 else "worker", workers, ""
            )
        )
    visible = cells[: columns * height]
    return [
        tuple(part for cell in visible[at : at + columns] for part in (*cell, ("  ", "")))[:-1]
        for at in range(0, len(visible), columns)
    ]


def _level(process: Process) -> Level:
    if not process.running or process.stalled_s:
        return Level.BAD
    return Level.WARNING if process.restarts else Level.GOOD


def _process(process: Process, status: Status) -> Line:
    name = name_of(process, status)
    trouble = ""
    if not process.running:
        trouble = "ended"
    elif process.stalled_s:
        trouble = f"stalled {process.stalled_s:.0f} s"
    elif process.restarts:
        trouble = f"{process.restarts} restarts"
    return _cell(_level(process), name, (process,), trouble)


def _cell(level: Level, name: str, found: Sequence[Process], trouble: str) -> Line:
    figures = trouble or f"{_sum(each.cpu_percent for each in found):>4}%"
    memory = [each.memory_bytes for each in found if each.memory_bytes is not None]
    memory_text = "" if trouble else f" {size(sum(memory)) if memory else '-':>9}"
    width = _CELL - 5 - len(figures) - len(memory_text)
    return (
        sign(level),
        (f" {cut_path(name, width):<{width}}", ""),
        (f" {figures}", level.style if trouble else ""),
        (memory_text, "muted"),
    )


def _sum(figures: Iterable[float | None]) -> str:
    known = [each for each in figures if each is not None]
    return f"{sum(known):.0f}" if known else "-"
