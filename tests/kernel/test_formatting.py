"""Formatting of money, dates and durations, and where Babel's data differs from ISO 4217."""

from datetime import UTC, datetime, timedelta

import pytest
from babel.numbers import get_currency_precision

from apps.events.currencies import CODES
from apps.kernel import formatting

EVENING = datetime(2027, 4, 1, 17, 30, 5, tzinfo=UTC)
FEWER_DIGITS_IN_EVERYDAY_USE = {
    "AFN", "ALL", "IQD", "IRR", "KPW", "LAK", "LBP", "MGA", "MMK", "RSD", "SOS", "SYP", "YER",
}  # fmt: skip


@pytest.mark.parametrize(
    ("minor", "currency", "text"),
    [
        (125_000, "USD", "$1,250.00"),
        (0, "EUR", "€0.00"),
        (5, "GBP", "£0.05"),
        (-5_000, "USD", "−$50.00"),
        (123_456, "JPY", "¥123,456"),
        (123_456, "KWD", "KWD\N{NO-BREAK SPACE}123.456"),
        (1_200, "CHF", "CHF\N{NO-BREAK SPACE}12.00"),
        (-1_200, "CHF", "−CHF\N{NO-BREAK SPACE}12.00"),
        (1_200, "CAD", "CA$12.00"),
        (1_200, "CNY", "CN¥12.00"),
        (1_200, "TWD", "NT$12.00"),
        (1_200, "PHP", "₱12.00"),
        (1_200, "XCD", "EC$12.00"),
        (1_200, "XOF", "F\N{NO-BREAK SPACE}CFA\N{NO-BREAK SPACE}1,200"),
        (1_200, "XXQ", "XXQ\N{NO-BREAK SPACE}12.00"),
        (10**15, "USD", "$10,000,000,000,000.00"),
    ],
)
def test_money_has_its_currency_sign_and_all_its_digits(minor: int, currency: str, text: str) -> None:
    assert formatting.format_money(minor, currency) == text


def test_a_missing_amount_is_an_empty_text() -> None:
    assert formatting.format_money(None, "USD") == ""


def test_minor_digits_equal_babels_except_for_currencies_with_fewer_digits_in_everyday_use() -> None:
    different = {code for code in CODES if formatting.minor_digits(code) != get_currency_precision(code)}
    assert different == FEWER_DIGITS_IN_EVERYDAY_USE
    assert all(get_currency_precision(code) < formatting.minor_digits(code) for code in different)


def test_babel_has_a_name_for_every_supported_currency() -> None:
    assert set(formatting._LOCALE.currencies) >= CODES


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 seconds"),
        (-5, "0 seconds"),
        (1, "1 second"),
        (59, "59 seconds"),
        (60, "1 minute"),
        (61, "1 minute 1 second"),
        (3_600, "1 hour"),
        (3_605, "1 hour"),
        (187_205, "2 days 4 hours"),
        (timedelta(minutes=9), "9 minutes"),
    ],
)
def test_a_duration_has_its_two_largest_units(value: int | timedelta, text: str) -> None:
    assert formatting.format_duration(value) == text


@pytest.mark.parametrize(
    ("zone", "pattern", "text"),
    [
        ("Europe/Berlin", formatting.DATE_TIME, "1 April 2027, 19:30"),
        ("Europe/Berlin", formatting.WEEKDAY_DATE_TIME, "Thursday 1 April 2027, 19:30"),
        ("Asia/Tokyo", formatting.DAY_TIME, "2 April, 02:30"),
        (UTC, formatting.TIME, "17:30"),
        ("UTC", formatting.LOG_MINUTE, "01 Apr 17:30"),
        (UTC, formatting.LOG_SECOND, "01 Apr 17:30:05"),
    ],
)
def test_a_time_is_written_in_its_time_zone(zone: str, pattern: str, text: str) -> None:
    assert formatting.format_datetime(EVENING, zone, pattern) == text


def test_the_name_of_a_time_zone_follows_daylight_saving() -> None:
    written = [
        formatting.format_datetime(moment, "Europe/Berlin", formatting.TIME, with_zone_name=True)
        for moment in (EVENING, EVENING - timedelta(days=90))
    ]
    assert written == ["19:30 (CEST)", "18:30 (CET)"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (30, "30 s"), (90, "1 min 30 s"), (600, "10 min"), (3_600, "1 h"), (5_430, "1 h 30 min 30 s")],
)
def test_a_time_to_pay_has_its_seconds(seconds: int, text: str) -> None:
    assert formatting.format_short_duration(seconds) == text
