"""Most tests run with either version of the wire protocol."""

from __future__ import annotations

import pytest

from tests.client import tinybookie


@pytest.fixture(params=["v2", "v3"])
def protocol(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The version that clients made by ``Cluster.client`` speak."""
    monkeypatch.setitem(tinybookie.DEFAULT_OPTIONS, "protocol", request.param)
    return str(request.param)
