"""docs/configuration.md, made from the schema: ``python -m tests.config.configurationpage`` writes it."""

from __future__ import annotations

from pathlib import Path

from bkbox.config.schema import SCHEMA, is_live, kind_of
from bkbox.config.values import REQUIRED, to_toml

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"

HEAD = """\
# Configuration

Made from `bkbox/config/schema.py` by `python -m tests.config.configurationpage`; a test compares.

One TOML file of flat keys. The environment goes before the file: `BKBOX_` and the key in upper case, lists of
folders with colons, other lists with semicolons.
A relative path counts from the folder of the file. A key that is not in this table is an error. Units are in the names
of the keys.

*live*: a bookie that runs takes a change over, with `bkbox config reload` or SIGHUP; all others need a restart.

| key | can be | default | live | what it does |
|---|---|---|---|---|
"""


TAIL = """
## Front-ends

`frontends` is the number of processes that have the clients' connections. Each has one thread, and its own connections
from the one port; limits on connections, rates and buffers hold over all of them together. One that dies takes its own
connections, and is restarted by itself.

With `0` it is the number of disks, but at most one for each four processor cores and eight in all: one on a host with
less than eight cores, or with one disk.

- A front-end and the workers behind it compute side by side. So do the supervisor, the repair worker, and the kernel
  for all of their sockets and disks. On a few cores a second front-end takes the time of a worker.
- One disk's worker has one thread as well, and does about as much for each request as a front-end: one front-end keeps
  one worker busy.
- Several front-ends cost something even so: the first request for each new ledger, and each request for one that the
  bookie does not have, asks the supervisor.
"""


def page() -> str:
    """The whole page."""
    rows = []
    for name, item in SCHEMA.items():
        default = item.metadata["default"]
        shown = "(required)" if default is REQUIRED else f"`{to_toml(default)}`"
        live = "live" if is_live(item) else ""
        meaning = item.metadata["doc"].replace("|", "\\|")
        rows.append(f"| `{name}` | {kind_of(item).permitted()} | {shown} | {live} | {meaning} |\n")
    return HEAD + "".join(rows) + TAIL


if __name__ == "__main__":
    PAGE.write_text(page())
