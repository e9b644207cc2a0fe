"""Statements that return the same views have the same columns: rows become views by position."""

import pytest

from apps.kernel.db import sql


def columns_and_tables(name: str) -> str:
    text = sql.load("apps.events", name).text
    return text[text.index("SELECT") : text.index("WHERE")]


@pytest.mark.parametrize(
    "names", [("public_events", "events_by_id"), ("seats_of_section", "seats_by_guid", "seats_by_id")]
)
def test_statements_of_one_view_select_the_same_columns(names: tuple[str, ...]) -> None:
    assert len({columns_and_tables(name) for name in names}) == 1
