"""The screen: takes a snapshot a second, and has the visible panel drawn from it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.css.query import NoMatches
from textual.events import Resize
from textual.geometry import Size
from textual.notifications import SeverityLevel
from textual.screen import Screen
from textual.widgets import ContentSwitcher, Footer, Static, Tab, Tabs

from bkbox.base import wait_notices
from bkbox.base.text import error_text, rate_of
from bkbox.errors import BkboxError
from bkbox.jobs.job import Job, JobAction, JobState
from bkbox_tui import themes
from bkbox_tui.dialogs import HelpScreen, Page, Question
from bkbox_tui.explain import explained
from bkbox_tui.formatting import Level
from bkbox_tui.glyphs import AsciiFilter
from bkbox_tui.keys import KEYS, PANELS, keys_of
from bkbox_tui.panels.base import Panel
from bkbox_tui.panels.cluster import Cluster, details
from bkbox_tui.panels.disks import Disks
from bkbox_tui.panels.events import Events
from bkbox_tui.panels.jobs import Jobs
from bkbox_tui.panels.limbo import Limbo
from bkbox_tui.panels.listing import Listing
from bkbox_tui.panels.on_demand import Cookies, Diagnostics
from bkbox_tui.panels.overview import Overview
from bkbox_tui.recording import Recorder
from bkbox_tui.sources import Bookie, Source
from bkbox_tui.table import Table
from bkbox_tui.view import View
from bkbox_tui.widgets import Top, TopBar

EVERY_S = 1.0
"""Seconds between two snapshots."""

_CONNECTED = "connected"
_SILENT_S = 1.7
"""A snapshot that is older is no longer what is true now."""
_WIDTH_MIN, _HEIGHT_MIN = 40, 10


class Tui(App[None]):
    """The application. ``record``: a recorder that runs from the beginning; ``recordings``: the folder for others and
    for pictures; ``plain``: the terminal has ASCII alone. ``source`` is that of the bookie that is open.
    """

    TITLE = "bkbox"
    VERTICAL_BREAKPOINTS = [(0, "-short"), (30, "-tall")]  # noqa: RUF012 Textual's own
    CSS = """
    #panels { height: 1fr; }
    .-short Panel > TextLabel.box { margin-top: 1; }
    .-short Panel > TextLabel.box.first { margin-top: 0; }
    .-short #disk-trends { height: 4; border: none; margin-top: 1; }
    .-tall Panel { padding: 0; }
    .-tall Panel > .title { display: none; }
    .-tall Panel > .box { border: round $foreground 35%; padding: 0 1; }
    .-tall Panel > .box:ansi { border: round ansi_default; border-title-color: ansi_default; }
    .-tall Panel > .fills { height: 1fr; min-height: 6; }
    Tab { padding: 0 1 0 0; }
    #too-small { display: none; }
    .too-small #too-small { display: block; }
    .too-small #panels, .too-small Tabs, .too-small Footer, .too-small TopBar { display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            key.key,
            key.action,
            key.label,
            show=key.in_footer,
            tooltip=key.help,
            id=key.action,
            priority=key.key == "tab" or key.key == "shift+tab",
        )
        for key in KEYS
    ]

    def __init__(
        self,
        source: Source,
        *,
        wall_ms: Callable[[], int],
        recordings: Path,
        record: Recorder | None = None,
        plain: bool = False,
    ) -> None:
        super().__init__()
        self._own_source = source
        self.view = View(source)
        for theme in (themes.LIGHT, themes.DARK):
            self.register_theme(theme)
            self.theme = theme.name
        if plain:
            self._filters.append(AsciiFilter())
        self._wall_ms = wall_ms
        self._recordings = recordings
        self._recorder = record
        self._frozen = False
        self._ended = False
        self._wake = asyncio.Event()

    def compose(self) -> ComposeResult:
        yield TopBar()
        yield Static("too small: the screen needs 40 x 10 at least", id="too-small", markup=False)
        yield Tabs(
            *(
                Tab(f"{number} {title}", id=f"tab-{name}")
                for number, (name, title, _) in enumerate(PANELS, 1)
            )
        )
        with ContentSwitcher(id="panels", initial=PANELS[0][0]):
            yield Overview(id="overview")
            yield Disks(id="disks")
            yield Limbo(id="limbo")
            yield Jobs(id="jobs")
            yield Cookies(id="cookies")
            yield Cluster(self._own_source, id="cluster")
            yield Events(id="events")
            yield Diagnostics(id="diagnostics")
        yield Footer()

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = False,
    ) -> None:
        """As Textual's, without markup: messages may contain typed text, a path, or a bookie's text."""
        super().notify(message, title=title, severity=severity, timeout=timeout, markup=markup)

    def on_mount(self) -> None:
        wait_notices.set_sink(self.notify)
        self.query_one(Tabs).can_focus = False
        self._begin_watch()
        self.set_interval(EVERY_S / 2, self._draw_top)
        self.set_interval(EVERY_S, self._measure)
        self.set_interval(EVERY_S / 2, self._ask_cluster)
        self._draw()

    def on_unmount(self) -> None:
        if self._recorder is not None:
            self._recorder.close()

    @property
    def source(self) -> Source:
        return self.view.source

    # ---- snapshots ----------------------------------------------------------------------------------

    def _begin_watch(self) -> None:
        """Watches the open bookie, and no other any more."""
        self.run_worker(self._watch(), exclusive=True, group="watch", exit_on_error=True)

    async def _watch(self) -> None:
        while not self._ended:
            if not self._frozen:
                await self._refresh()
            self._wake.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), EVERY_S)

    async def _refresh(self) -> None:
        view = self.view
        snapshot = await view.source.read()
        if view is not self.view:
            return
        if snapshot is None:
            self._ended = True
        else:
            view.update(snapshot)
            if view.source is self._own_source:
                self._record(lambda recorder: recorder.add(snapshot))
        self._draw()

    def _record(self, write: Callable[[Recorder], None]) -> None:
        if self._recorder is None:
            return
        try:
            write(self._recorder)
        except OSError as error:
            self.notify(f"the recording ended: {error_text(error)}", severity="error")
            self._end_recording()

    def _draw(self) -> None:
        with suppress(NoMatches):  # a screen that is just being built or removed has no widgets
            self._draw_top()
            panel = self.panel
            # Panels under a dialog are not visible.
            if len(self.screen_stack) == 1 and panel.is_mounted and panel.is_attached:
                panel.show(self.view)

    def _ask_cluster(self) -> None:
        if (panel := self._visible_cluster()) is not None:
            panel.tick()

    @on(Cluster.Answered)
    def _draw_cluster(self) -> None:
        if (panel := self._visible_cluster()) is not None:
            panel.draw()

    def _visible_cluster(self) -> Cluster | None:
        """The panel of the cluster, if it is seen and goes on."""
        with suppress(NoMatches):
            panel = self.panel
            if isinstance(panel, Cluster) and not self._frozen and len(self.screen_stack) == 1:
                return panel
        return None

    def _draw_top(self) -> None:
        snapshot = self.view.snapshot
        age = None if snapshot is None else max(0.0, (self._wall_ms() - snapshot.taken_ms) / 1_000)
        flags = [*self.view.flags]
        flags += ["PAUSED"] if self._frozen else []
        flags += ["RECORDING"] if self._recorder is not None else []
        connection, level = self._connection(), self.view.answers.level
        if connection == _CONNECTED and not self._frozen and (age or 0.0) > _SILENT_S:
            connection, level = "NO ANSWER", Level.UNKNOWN
        bars = self.query(TopBar)
        if bars:
            bars.first().show(Top(self.source.name, connection, level, age, tuple(flags)))

    def _connection(self) -> str:
        if not self.source.is_live:
            return "end of the recording" if self._ended else "replay"
        snapshot = self.view.snapshot
        if snapshot is None:
            return "connecting"
        return _CONNECTED if snapshot.status is not None else "NOT CONNECTED"

    # ---- panels -------------------------------------------------------------------------------------

    @property
    def panel(self) -> Panel:
        """The visible panel."""
        switcher = self.query_one("#panels", ContentSwitcher)
        return switcher.query_one(f"#{switcher.current}", Panel)

    @property
    def panel_name(self) -> str:
        return self.query_one("#panels", ContentSwitcher).current or PANELS[0][0]

    def action_panel(self, name: str) -> None:
        self.query_one(Tabs).active = f"tab-{name}"

    @on(Tabs.TabActivated)
    def _switch(self, event: Tabs.TabActivated) -> None:
        self.query_one("#panels", ContentSwitcher).current = (event.tab.id or "").removeprefix(
            "tab-"
        )
        panel = self.panel
        self.set_focus(next(iter(panel.query(Table)), None), scroll_visible=False)
        self._draw()
        self.run_worker(panel.load(self.source), exclusive=True, group="on demand")
        self.refresh_bindings()

    def action_next_panel(self) -> None:
        self.query_one(Tabs).action_next_tab()

    def action_previous_panel(self) -> None:
        self.query_one(Tabs).action_previous_tab()

    def on_resize(self, event: Resize) -> None:
        small = event.size.width < _WIDTH_MIN or event.size.height < _HEIGHT_MIN
        self.screen.set_class(small, "too-small")

    def _measure(self) -> None:
        """Textual's handlers of SIGWINCH may nest: the last size to arrive need not be the last one set."""
        size = Size(*shutil.get_terminal_size())
        if size != self.screen.size and not self.is_headless:
            self.post_message(Resize(size, size))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hides keys of other panels, and actions that a recording does not permit."""
        for key in KEYS:
            if key.action == action and parameters == ():
                return key in keys_of(self.panel_name) and (
                    self.source.is_live or not key.on_live_only
                )
        return True

    def get_system_commands(self, screen: Screen[object]) -> list[SystemCommand]:
        """The table of keys, by name."""
        return [
            SystemCommand(
                key.label,
                key.help,
                lambda action=key.action: self.call_later(self.run_action, action),
            )
            for key in keys_of(self.panel_name)
            if self.source.is_live or not key.on_live_only
        ]

    # ---- key actions --------------------------------------------------------------------------------

    def action_help(self) -> None:
        _, title, about = next(item for item in PANELS if item[0] == self.panel_name)
        self.push_screen(
            HelpScreen(title, about, keys_of(self.panel_name)), lambda _none: self._draw()
        )

    def action_refresh(self) -> None:
        self._frozen = False
        self._wake.set()
        self.run_worker(self.panel.load(self.source), exclusive=True, group="on demand")

    def action_freeze(self) -> None:
        self._frozen = not self._frozen
        self._wake.set()
        self._draw_top()

    def action_record(self) -> None:
        if self._recorder is not None:
            self.notify(f"recorded to {self._recorder.path}")
            self._end_recording()
            return
        path = self._recordings / f"bkbox-{self._wall_ms()}.jsonl.gz"
        try:
            self._recorder = Recorder(path)
        except BkboxError as error:
            self.notify(str(error), severity="error")
            return
        snapshot = self.view.snapshot
        if snapshot is not None:
            self._record(lambda recorder: recorder.add(snapshot))
        self.notify(f"recording to {path}")
        self._draw_top()

    def _end_recording(self) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            with suppress(OSError):  # reported when it happened
                recorder.close()
        self._draw_top()

    def action_theme(self) -> None:
        at = themes.NAMES.index(self.theme) if self.theme in themes.NAMES else -1
        self.theme = themes.NAMES[(at + 1) % len(themes.NAMES)]

    def action_filter(self) -> None:
        if isinstance(self.panel, Listing):
            self.panel.filter()

    def action_sort(self) -> None:
        if isinstance(self.panel, Listing):
            self.panel.sort()

    def action_leave(self) -> None:
        if self.panel.clear():
            self._draw()
        elif self.source is not self._own_source:
            self._show(self._own_source)
            self.action_panel("cluster")

    def action_open(self) -> None:
        panel = self.query_one(Cluster)
        row, source = panel.selected, self._own_source
        if row is None or not isinstance(source, Bookie):
            self.notify("there is no bookie under the cursor", severity="warning")
            return
        address = panel.address_of(row)
        if row.bookie == source.bookie_id:
            self._show(source)
            self.action_panel("overview")
        elif address is not None:
            self._show(source.other(address))
            self.action_panel("overview")
        else:
            page = Page(row.bookie, details(row))
            self.push_screen(page, lambda _none: self._draw())

    def _show(self, source: Source) -> None:
        """Opens a bookie: all panels are about it from now on."""
        if source is not self.source:
            self.view = View(source)
            self._begin_watch()
            self._draw()

    def action_copy(self) -> None:
        commands = [command for _, command in self.view.answers.next_steps if command]
        if not commands:
            self.notify("no command is advised", severity="warning")
            return
        self.copy_to_clipboard(commands[0])
        self.notify(f"copied: {commands[0]}")

    def action_picture(self) -> None:
        path = self._recordings / f"bkbox-{self._wall_ms()}.svg"
        try:
            self.save_screenshot(path.name, str(path.parent))
        except OSError as error:
            self.notify(f"{path} cannot be written: {error_text(error)}", severity="error")
        else:
            self.notify(f"the screen is in {path}")

    def action_explain(self) -> None:
        ledger, source = self.query_one(Limbo).selected, self.source
        if ledger is None or not isinstance(source, Bookie):
            self.notify("there is no ledger under the cursor", severity="warning")
            return
        known = self.query_one(Limbo).records_of(ledger)
        page = Page(f"Ledger {ledger}", "\n".join([*known, "asking its bookies …"]))
        self.push_screen(page, lambda _none: self._draw())
        self.run_worker(self._explain(source, ledger, known, page), exclusive=True, group="explain")

    async def _explain(
        self, source: Bookie, ledger: int, known: tuple[str, ...], page: Page
    ) -> None:
        try:
            text = explained(await source.explain(ledger))
        except BkboxError as error:
            text = "\n".join([*known, f"it cannot be told: {error}"])
        page.set_content(text)

    def action_severity(self) -> None:
        self.query_one(Events).next_severity()
        self._draw()

    # ---- jobs ---------------------------------------------------------------------------------------

    def action_pause_job(self) -> None:
        job = self._job()
        if job is not None:
            paused = job.state is JobState.PAUSED
            self._act(job, JobAction.RESUME if paused else JobAction.PAUSE)

    def action_cancel_job(self) -> None:
        job = self._job()
        if job is None:
            return
        question = Question(
            f"End job {job.id} ({job.kind.value})? Type its id, {job.id}:", must_be=str(job.id)
        )
        self.push_screen(
            question, lambda reply: None if reply is None else self._act(job, JobAction.CANCEL)
        )

    def action_rate_job(self) -> None:
        job = self._job()
        if job is None:
            return

        def on_reply(reply: str | None) -> None:
            if reply is None:
                return
            try:
                limit = rate_of(reply.strip())
            except ValueError as error:
                self.notify(str(error), severity="error")
                return
            self._act(job, JobAction.RATE, limit)

        self.push_screen(
            Question(
                f"Bytes a second for job {job.id}, as 20MB/s or 20MiB/s; 0 or unlimited for no limit:"
            ),
            on_reply,
        )

    def _job(self) -> Job | None:
        job = self.query_one(Jobs).selected
        if job is None or job.state.ended:
            self.notify("there is no job under the cursor that has not ended", severity="warning")
            return None
        return job

    def _act(self, job: Job, action: JobAction, limit: int | None = None) -> None:
        source = self.source
        if isinstance(source, Bookie):
            self.run_worker(self._execute(source, job, action, limit))

    async def _execute(
        self, source: Bookie, job: Job, action: JobAction, limit: int | None
    ) -> None:
        try:
            await source.act(job.id, action, limit)
        except BkboxError as error:
            self.notify(str(error), severity="error")
        else:
            self.notify(f"job {job.id}: {action.value}")
        self._wake.set()
