"""docs/cli.md says what the commands say."""

from tests.cli.commandpage import PAGE, page


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run: python -m tests.cli.commandpage"
