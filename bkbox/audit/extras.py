"""Modules that only an extra installs: checked before they are needed, so that the error names the extra."""

from __future__ import annotations

from importlib.util import find_spec

from bkbox.errors import OperatorError


def need(*modules: str, extra: str, what: str) -> None:
    """Raises OperatorError if one of these modules is not installed."""
    absent = [name for name in modules if find_spec(name) is None]
    if absent:
        raise OperatorError(
            f"{what} needs {', '.join(absent)}, which is not installed: pip install 'bkbox[{extra}]'"
        )


def need_arrow(what: str) -> None:
    """Raises OperatorError if pyarrow is not installed."""
    need("pyarrow", extra="parquet", what=what)
