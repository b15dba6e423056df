"""docs/http.md, docs/openapi.json and docs/status.schema.json, made from the code: ``python -m tests.api.httppages``
writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from bkbox.api.admin.application import BODY_BYTES_MAX
from bkbox.api.admin.openapi import document_of
from bkbox.api.admin.routes import Route
from bkbox.api.admin.schema import schema_of
from bkbox.api.admin.status import Status
from bkbox.api.admin.tcp_access import REQUESTS_PER_SECOND
from bkbox.api.table import routes

DOCS = Path(__file__).parents[2] / "docs"

HEAD = f"""\
# Admin API

Made from the table of routes by `python -m tests.api.httppages`; a test compares. The same as an OpenAPI document:
[openapi.json](openapi.json), which the bookie serves at `/openapi.json`; the status document's JSON Schema:
[status.schema.json](status.schema.json).

## Two ways in

**The unix socket** (`admin.sock` on the first disk, or in `run_dir`) answers root and the user that runs the bookie;
the kernel gives its user id.

```
curl --unix-socket /data/a/admin.sock http://localhost/healthz?verbose
```

**TCP** only where `http_listen` is set, and only for callers with a token.

```
(umask 077; openssl rand -hex 32 > /etc/bkbox/token; openssl rand -hex 32 > /etc/bkbox/read-token)
```
```
http_listen = "0.0.0.0:8080"
http_tls = "required"                            # the default, "loopback", is in the clear and for this host alone
tls_certificate_file = "/etc/bkbox/bookie.crt"   # as for the bookie's port: see security.md
tls_key_file = "/etc/bkbox/bookie.key"
http_token_file = "/etc/bkbox/token"             # may do everything
http_read_token_file = "/etc/bkbox/read-token"   # may only read: for metrics and probes
```
```
curl --cacert ca.crt -H "Authorization: Bearer $(cat token)" https://bookie1.example.com:8080/api/v1/status
bkbox status --bookie https://bookie1.example.com:8080 --token-file token
```

With `http_tls = "required"` nothing but TLS is answered. With `"loopback"` the bookie refuses to start where
`http_listen` is an address that others reach; `"off"` does that all the same, and an eavesdropper on the network can
read the tokens. The bookie refuses to start with a token file that others than its owner may read. Tokens and
certificates are read anew when their files change (checked every 5 s), and by `bkbox config reload`: an old token is
worth nothing from the next request on.

`bkbox status`, `job`, `health` and `tui` take `--bookie URL` and `--token-file FILE`, or the variables `BKBOX_BOOKIE`
and `BKBOX_TOKEN_FILE`. Which certificates they trust, and what they show, is in the file that `BKBOX_CLIENT_FILE` names
(`tls_ca_file`, `tls_certificate_file`, `tls_key_file`; see [security.md](security.md)); without one the system's
authorities count. They send no token over plain HTTP to another host, unless `--plain-text` says so.

## Rules

- A request with `Origin` or `Sec-Fetch-Site` is refused (403): it comes from a web page. Over TCP `Host` has to be an
  address, `localhost`, or a name of this host: the one in `http_listen`, `advertised_host`, or the host's own (else
  421).
- Bodies are JSON objects of at most {BODY_BYTES_MAX // 1024} KiB with content type `application/json`. An
  unknown field or parameter is an error, as is one of the wrong type.
- An error is a problem document (RFC 9457, `application/problem+json`): `status`, `title`, `detail` (what is wrong,
  where, and what to do), `error` (the name of bkbox's error).
- A connection without a whole request is closed after 30 s, one that is not through with TLS after 10 s, a body has to
  come within 10 s. More than 512 connections at once are answered 503, more than 1,024 closed.
- Over TCP, callers with a token may ask {REQUESTS_PER_SECOND} times a second, all together; more are answered 429. A
  wrong token ends its connection, and connections come at 200 a second at most.
- Changes are logged with their caller.

| status | when |
|---|---|
| 400 | the request cannot be understood |
| 401 | no token, or a wrong one |
| 403 | not for this caller: the token may only read, another user, a web page |
| 404 | no such path, job or ledger |
| 405, 408, 413, 415, 421 | wrong method, a late body, a large one, one of another type, another host |
| 409 | it cannot be done as things stand |
| 429 | too many requests |
| 503, 504 | the metadata store is away; a process or a disk did not answer in time |

## Health

`/livez`: the supervisor answers. `/readyz`: clients should be sent here (it runs, a disk is in service, it is
registered); 503 and why otherwise. `/healthz`: 503 if a check fails, `?verbose` shows each: `ok`, `warn` (it serves,
an operator should check) or `fail`. One check writes 4 KiB on each disk, syncs it, reads it back from the device and
removes it; the disk's own worker does that, every 30 s at most, however often it is asked.

## Events

`/api/v1/events` is a stream of server-sent events: what changes from one second to the next, each with a number, a time
(`ms`), a severity (info, warning, error), a subject (`bookie`, `disk/UUID`, `limbo`, `ledger/ID`, `job/ID`,
`process/ROLE`, `warning`) and a text. A client that reconnects with `Last-Event-ID`, or `?after=`, gets what it missed,
up to the last 1,000, as long as another client listened meanwhile. At most 256 listen; a comment comes every 10 s where
nothing happens.
"""

OWN = """
## Paths

| | path | what it does | body |
|---|---|---|---|
"""

JAVA = """
## Paths of Apache's bookie

They answer the same shapes, so that tools that know them keep working. Different: a token is needed over TCP; a
ledger's `password` is empty; `customMetadata` is base64; `gc_details` tells of bkbox's one kind of compaction as the
major one; `server_config` has bkbox's keys; responses have a content type. Not there: `last_log_mark`,
`expand_storage`, `entry_location_compact`, suspending compaction, `ledger/read`, `autorecovery/bookie`,
`autorecovery/trigger_audit`, changes of `server_config`.

| | path | what it does | body |
|---|---|---|---|
"""


def table() -> tuple[Route, ...]:
    """All routes, of no bookie."""
    return routes(cast(Any, None), cast(Any, None))


def page() -> str:
    """docs/http.md."""
    ordered = sorted(table(), key=lambda route: (route.path, route.method))
    own = "".join(_row(route) for route in ordered if not route.java)
    java = "".join(_row(route) for route in ordered if route.java)
    return HEAD + OWN + own + JAVA + java


def openapi() -> str:
    """docs/openapi.json."""
    return json.dumps(document_of(table()), indent=1) + "\n"


def status_schema() -> str:
    """docs/status.schema.json."""
    return json.dumps(schema_of(Status, "Status of a bookie of bkbox"), indent=1) + "\n"


PAGES = {
    DOCS / "http.md": page,
    DOCS / "openapi.json": openapi,
    DOCS / "status.schema.json": status_schema,
}


def _row(route: Route) -> str:
    query = "&".join(f"{each.name}=" for each in route.query)
    path = f"{route.path}?{query}" if query else route.path
    body = (
        "" if route.body is None else ", ".join(f"`{name}`" for name in route.body.__annotations__)
    )
    return f"| {route.method} | `{path}` | {route.summary} | {body} |\n"


if __name__ == "__main__":
    for path, make in PAGES.items():
        path.write_text(make())
