"""What is installed only with an extra: looked for before it is needed, so that its absence is said in words."""

from __future__ import annotations

from importlib.util import find_spec

from bkbox.errors import OperatorError


def need(*modules: str, extra: str, what: str) -> None:
    """Raises OperatorError where one of these is not installed."""
    absent = [name for name in modules if find_spec(name) is None]
    if absent:
        raise OperatorError(
            f"{what} needs {', '.join(absent)}, which is not installed: pip install 'bkbox[{extra}]'"
        )


def need_arrow(what: str) -> None:
    """Raises OperatorError where pyarrow is not installed."""
    need("pyarrow", extra="parquet", what=what)
