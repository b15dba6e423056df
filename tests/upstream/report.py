"""docs/upstream.md: what passed of each of upstream's test classes. docs/upstream.json has the results of the last run
of each; a run replaces those of its own classes."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field

from tests.bench.peers.report import replace_between
from tests.harness.java import CHECKOUT, VERSION
from tests.upstream.jars import Result
from tests.upstream.scope import CLASSES, OUT

PAGE = CHECKOUT / "docs" / "upstream.md"
FILE = CHECKOUT / "docs" / "upstream.json"


@dataclass(frozen=True)
class Run:
    """The last run of a class: tests with their parameter sets, without those whose method is out of scope."""

    version: str
    passed: int
    failed: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.passed} of {self.passed + len(self.failed)}"


Runs = dict[str, dict[str, Run]]
"""By class, and by whose bookies they ran on: bkbox or java."""


def read() -> Runs:
    if not FILE.exists():
        return {}
    return {
        name: {bookies: Run(**run) for bookies, run in runs.items()}
        for name, runs in json.loads(FILE.read_text()).items()
    }


def note(name: str, bookies: str, results: list[Result]) -> None:
    """Keep the results of a class that ran as a whole."""
    out = {test for each in CLASSES if each.name == name for test in each.out}
    counted = [each for each in results if method(each) not in out]
    failed = sorted(each.name for each in counted if each.failure is not None)
    runs = read()
    runs.setdefault(name, {})[bookies] = Run(VERSION, len(counted) - len(failed), failed)
    document = {
        each: {bookies: asdict(run) for bookies, run in sorted(runs[each].items())}
        for each in sorted(runs)
    }
    FILE.write_text(json.dumps(document, indent=1) + "\n")


def method(result: Result) -> str:
    found = re.match(r"\w+", result.name.partition(".")[2])
    assert found is not None, result
    return found[0]


def tables(runs: Runs) -> str:
    """Markdown: classes in scope, and what is out of scope, with reasons."""
    rows = ["| class | methods | passed of run on bkbox | on Java bookies |", "|---|--:|--:|--:|"]
    methods = 0
    for each in sorted(CLASSES, key=lambda each: each.name):
        on = runs.get(each.name, {})
        cells = [str(on.get(bookies, "")) for bookies in ("bkbox", "java")]
        rows.append(f"| `{each.name}` | {len(each.tests)} | {cells[0]} | {cells[1]} |")
        methods += len(each.tests)
    failures = [
        f"- `{test}` on {bookies}"
        for each in CLASSES
        for bookies, run in runs.get(each.name, {}).items()
        for test in run.failed
    ]
    some = [f"- `{each.name}.{test}`: {why}" for each in CLASSES for test, why in each.out.items()]
    whole = [
        f"- {why}: {', '.join(f'`{name}`' for name in sorted(names))}" for why, names in OUT.items()
    ]
    return "\n".join(
        [
            "",
            f"{len(CLASSES)} classes with {methods} methods, of Apache BookKeeper {VERSION}. Parameter sets count as "
            "tests each. An empty cell: the class was not run as a whole on these bookies.",
            "",
            *rows,
            "",
            *(["Failed in these runs:", "", *failures, ""] if failures else []),
            "Methods of these classes that are not run, and why:",
            "",
            *sorted(some),
            "",
            f"Classes out of scope, {sum(map(len, OUT.values()))}:",
            "",
            *whole,
            "",
        ]
    )


def write() -> None:
    PAGE.write_text(replace_between(PAGE.read_text(), "upstream", tables(read())))
