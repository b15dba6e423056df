"""Every operation of the admin API keeps what its OpenAPI document says, whatever is asked of it (schemathesis).

A bounded run, the same each time; ``CONTRACT_EXAMPLES=200`` makes it a long one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bkbox.api.admin.socket_path import EVENTS_URL
from tests.harness.processes import BookieProcess, free_port

TOKEN = "t" * 32
EXAMPLES = int(os.environ.get("CONTRACT_EXAMPLES", "4"))
ENDLESS = {EVENTS_URL}
"""Answers that do not end."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root: Path = tmp_path_factory.mktemp("contract")
    token = root / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    port = free_port()
    bookie = BookieProcess(root, f"sqlite:{root}/cluster.db").init(
        disks=2, http_listen=f"127.0.0.1:{port}", http_token_file=token
    )
    try:
        bookie.start()
        yield f"http://127.0.0.1:{port}"
        assert bookie.process is not None
        assert bookie.process.poll() is None, "nothing that is asked ends the bookie"
    finally:
        bookie.ensure_gone()


# The client that schemathesis sends with is closed by whoever collects it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("mode", ["POSITIVE", "NEGATIVE"])
def test_operations_keep_their_contract(url: str, mode: str) -> None:
    import schemathesis  # takes longer to import than most tests to run
    from hypothesis import HealthCheck, given, settings
    from hypothesis.errors import Unsatisfiable
    from schemathesis.checks import load_all_checks
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    from tests.api.httppages import openapi

    load_all_checks()
    schema = schemathesis.openapi.from_dict(json.loads(openapi()))
    headers = {"Authorization": f"Bearer {TOKEN}"}
    asked = 0
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.path in ENDLESS:
            continue

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=schemathesis.GenerationMode[mode]))
        def run(case: schemathesis.Case) -> None:
            nonlocal asked
            asked += 1
            # What is well formed may still be refused: there is no such disk, or the bookie is busy.
            case.call_and_validate(
                base_url=url,
                headers=headers,
                timeout=60,
                excluded_checks=[positive_data_acceptance],
            )

        try:
            run()
        except Unsatisfiable:
            assert mode == "NEGATIVE", operation.label  # nothing in it can be wrong
    assert asked >= EXAMPLES * 10
