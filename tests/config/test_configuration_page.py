"""docs/configuration.md says what the schema says."""

from tests.config.configurationpage import PAGE, page


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run: python -m tests.config.configurationpage"
