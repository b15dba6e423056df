"""Run classes of upstream's tests, whether classes.toml has them or not: what passed of each.

    python -m tests.upstream client.LedgerCloseTest test.CloseTest client.TestFencing#testBasicFencing

Where something failed, reports and logs are left in a folder, which is named.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from tests.upstream import jars, report


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.upstream", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="CLASS[#METHOD]", help="below org.apache.bookkeeper"
    )
    parser.add_argument("--bookies", choices=["bkbox", "java"], default="bkbox")
    parser.add_argument(
        "--report",
        action="store_true",
        help="keep the results of whole classes, and write docs/upstream.md",
    )
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # bookies are ended then, too
    folder = Path(tempfile.mkdtemp(prefix="upstream-"))
    passed = [_run(folder, name, given.bookies, keep=given.report) for name in given.names]
    if given.report:
        report.write()
    return 0 if all(passed) else 1


def _run(folder: Path, name: str, bookies: str, *, keep: bool) -> bool:
    """True if every test of it passed."""
    root = folder / name.replace("#", ".")
    root.mkdir()
    results, logs = jars.run(root, [jars.selector(name)], bookies, jars.CLASS_TIMEOUT_S)
    failed = [result for result in results if result.failure is not None]
    print(f"{name}: {len(results) - len(failed)} of {len(results)} passed", flush=True)
    for result in failed:
        reason = str(result.failure).strip().splitlines()[0]
        print(f"    {result.name}: {reason}", flush=True)
    if keep and results and "#" not in name:
        report.note(name, bookies, results)
    if results and not failed:
        shutil.rmtree(root)
        return True
    text = "".join(f"==== {part}\n{log}\n" for part, log in logs.items())
    text += "".join(f"==== {each.name}\n{each.failure}\n" for each in failed)
    (root / "failed.log").write_text(text)
    print(f"    see {root}", flush=True)
    return False


sys.exit(main())
