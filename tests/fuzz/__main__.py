"""``python -m tests.fuzz TARGET… --inputs 1000000 [--seed K]``: fuzz, and print a table. Exits 1 after a finding.

``--list`` prints the targets. ``--plain`` goes without atheris, as a Python for which there is none does.
``--sanitized`` goes without it, too, over a kernel that is compiled with bounds checked and AddressSanitizer
(sanitized.py). The corpora lie under build/fuzz, and are begun with.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.fuzz import sanitized
from tests.fuzz.engine import INPUT_BYTES_MAX, Box, Finding, Report
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS

FOLDER = Path("build", "fuzz")
_RSS = re.compile(r"#(\d+)\s+(INITED|DONE)\s.*? rss: (\d+)Mb")
_TOOK = re.compile(r"Done \d+ runs in (\d+) second")
_DEAD_S = 3 * 3600


def guided(target: Target, inputs: int, seed: int) -> Report:
    """A run of libFuzzer."""
    corpus = _corpus(target)
    for number, data in enumerate(target.seeds()):
        (corpus / f"seed-{number:04}").write_bytes(data)
    artifacts = FOLDER / "findings" / target.name
    artifacts.mkdir(parents=True, exist_ok=True)
    known = set(artifacts.iterdir())
    options = (f"-runs={inputs}", f"-seed={seed}", f"-max_len={INPUT_BYTES_MAX}")
    bounds = ("-timeout=20", "-rss_limit_mb=1024", f"-artifact_prefix={artifacts}/")
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.guided", target.name, *options, *bounds, str(corpus)],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=_DEAD_S,
    )
    said = done.stdout + done.stderr
    took = _TOOK.search(said)
    report = Report(target.name, seconds=float(took[1]) if took else time.perf_counter() - begun)
    rss = {kind: (int(number), int(size)) for number, kind, size in _RSS.findall(said)}
    report.inputs, after = rss.get("DONE", (0, 0))
    report.rss = rss.get("INITED", (0, 0))[1], after
    report.corpus = sum(1 for _ in corpus.iterdir())
    if done.returncode:
        new = [path for path in artifacts.iterdir() if path not in known]
        data = new[0].read_bytes() if new else b""
        report.findings.append(Finding(data, said[:6000]))
    return report


def plain(target: Target, inputs: int, seed: int, *, checked: bool) -> Report:
    """A run of engine.py in a process of its own."""
    box = FOLDER.resolve() / f"last-{target.name}"
    Box(box)
    options = ("--inputs", str(inputs), "--seed", str(seed), "--box", str(box))
    command = [target.name, *options, "--corpus", str(_corpus(target).resolve())]
    start = sanitized.start if checked else _start
    done = start("tests.fuzz.engine", command, _DEAD_S)
    try:
        fields = json.loads(done.stdout)
    except ValueError:
        text = f"the process ended with {done.returncode}\n{done.stdout[:2000]}{done.stderr[:6000]}"
        return Report(target.name, findings=[Finding(Box.read(box), text)])
    found = [Finding(bytes.fromhex(data), text) for data, text in fields.pop("findings")]
    if done.stderr.strip():
        found.append(Finding(b"", f"said on standard error:\n{done.stderr[:6000]}"))
    return Report(**fields, findings=found)


def _start(module: str, arguments: list[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=timeout_s,
    )


def _corpus(target: Target) -> Path:
    corpus = FOLDER / "corpus" / target.name
    corpus.mkdir(parents=True, exist_ok=True)
    return corpus


def show(reports: list[Report], title: str) -> None:
    """The table, and what was found."""
    console = Console(width=110)
    table = Table(title=title)
    table.add_column("target")
    for name in ("inputs", "inputs/s", "corpus", "RSS before, MiB", "RSS after, MiB", "findings"):
        table.add_column(name, justify="right")
    for report in reports:
        rate = report.inputs / report.seconds if report.seconds else 0
        table.add_row(
            report.target,
            f"{report.inputs:,}",
            f"{rate:,.0f}",
            str(report.corpus),
            *(f"{size:.0f}" for size in report.rss),
            str(len(report.findings)),
        )
    console.print(table)
    for report in reports:
        for finding in report.findings:
            console.print(f"\n{report.target}: {finding.data.hex()}", soft_wrap=True)
            console.print(finding.text, markup=False, soft_wrap=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--list", action="store_true", help="print the targets")
    parser.add_argument("--plain", action="store_true", help="without atheris")
    parser.add_argument("--sanitized", action="store_true", help="over a checked kernel")
    given = parser.parse_args()
    if given.list:
        for target in TARGETS.values():
            print(f"{target.name:12} {target.about}")
        return 0
    names = given.targets or list(TARGETS)
    if unknown := set(names) - set(TARGETS):
        parser.error(f"no such target: {', '.join(sorted(unknown))}")
    blind = given.plain or given.sanitized or importlib.util.find_spec("atheris") is None
    if given.sanitized:
        sanitized.build()
    reports = []
    for name in names:
        target = TARGETS[name]
        if blind:
            reports.append(plain(target, given.inputs, given.seed, checked=given.sanitized))
        else:
            reports.append(guided(target, given.inputs, given.seed))
        print(f"{name}: {len(reports[-1].findings)} findings", file=sys.stderr, flush=True)
    how = "over a checked kernel" if given.sanitized else "blind" if blind else "guided by coverage"
    show(reports, f"{given.inputs:,} inputs for each target, {how}, seed {given.seed}")
    return any(report.findings for report in reports)


if __name__ == "__main__":
    sys.exit(main())
