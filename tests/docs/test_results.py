"""The tables of the model in docs/verification.md are those that tests/model asserts."""

from __future__ import annotations

from typing import NoReturn

import pytest
from click.testing import CliRunner

from proof.cli import model_check
from proof.model.options import Options
from tests.docs.results import PAGE, arguments, page_with_model_tables, result
from tests.model.rows import ROWS, Row


def test_the_tables_are_those_of_the_rows() -> None:
    page = PAGE.read_text()
    assert page_with_model_tables(page) == page, "python -m tests.docs.results model"


class _SearchedError(Exception):
    def __init__(self, options: Options, fold: bool) -> None:
        super().__init__()
        self.what = options, fold


@pytest.mark.parametrize(
    "row", [row for _, row in ROWS], ids=[f"{group}: {row.name}" for group, row in ROWS]
)
def test_the_arguments_that_are_shown_give_the_row(
    row: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    def search(options: Options, *, fold: bool, **_: object) -> NoReturn:
        raise _SearchedError(options, fold)

    monkeypatch.setattr(model_check, "search", search)
    done = CliRunner().invoke(model_check.model_check, arguments(row))
    assert isinstance(done.exception, _SearchedError), done.output
    assert done.exception.what == (row.options, row.fold)


def test_a_result_has_its_command() -> None:
    assert result(["bkbox", "sim"], "seed  1\n").startswith("`bkbox sim`, on ")
    assert result(["a"], "seed  1\n").endswith(":\n\n```\nseed  1\n```")
    assert result(["a"], "| a |\n|---|\n").endswith(":\n\n| a |\n|---|")
