"""Run classes of upstream's tests on bkbox bookies, whether classes.toml has them or not: what passed of each.

    python -m tests.upstream client.LedgerCloseTest test.CloseTest client.TestFencing#testBasicFencing

Reports and logs are left in a folder, which is named where something failed.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path

from tests.upstream import jars


def main(names: list[str]) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # bookies are ended then, too
    folder = Path(tempfile.mkdtemp(prefix="upstream-"))
    all_passed = True
    for name in names:
        root = folder / name.replace("#", ".")
        root.mkdir()
        results, logs = jars.run(root, [jars.selector(name)])
        failed = [result for result in results if result.failure is not None]
        print(f"{name}: {len(results) - len(failed)} of {len(results)} passed", flush=True)
        for result in failed:
            reason = str(result.failure).strip().splitlines()[0]
            print(f"    {result.name}: {reason}", flush=True)
        if failed or not results:
            all_passed = False
            text = "".join(f"==== {part}\n{log}\n" for part, log in logs.items())
            text += "".join(f"==== {each.name}\n{each.failure}\n" for each in failed)
            (root / "failed.log").write_text(text)
            print(f"    see {root}", flush=True)
    return 0 if all_passed else 1


sys.exit(main(sys.argv[1:]))
