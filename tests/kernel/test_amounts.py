"""Amounts as people type them: read exactly, in currencies of 0, 2 and 3 decimals, or refused with a reason."""

import pytest
from django import forms
from hypothesis import given
from hypothesis import strategies as st

from apps.kernel.form_fields.amounts import InvalidAmount, parse_money, parse_percent, write_money, write_percent
from apps.kernel.form_fields.fields import MoneyField, PercentField, set_currency

MOST = 10**12


@pytest.mark.parametrize(
    ("typed", "currency", "minor"),
    [
        ("45.00", "GBP", 4_500),
        ("45", "GBP", 4_500),
        ("45.5", "GBP", 4_550),
        (".5", "GBP", 50),
        ("£1,250.00", "GBP", 125_000),
        ("1,250", "GBP", 125_000),
        ("45 gbp", "GBP", 4_500),
        ("CA$45", "CAD", 4_500),
        ("0", "GBP", 0),
        ("4500", "JPY", 4_500),
        ("4500.00", "JPY", 4_500),
        ("¥4,500", "JPY", 4_500),
        ("1,234,567", "JPY", 1_234_567),
        ("45", "KWD", 45_000),
        ("1.234", "KWD", 1_234),
        ("KWD 1,234.500", "KWD", 1_234_500),
        ("1,234,567", "KWD", 1_234_567_000),
    ],
)
def test_an_amount_is_read_in_the_smallest_unit_of_its_currency(typed: str, currency: str, minor: int) -> None:
    assert parse_money(typed, currency, minor_max=MOST) == minor


@pytest.mark.parametrize(
    ("typed", "currency", "reason"),
    [
        ("45,00", "GBP", "“45,00” can mean 45.00 or 4,500.00. Write one of these."),
        ("1,23", "GBP", "“1,23” can mean 1.23 or 123.00. Write one of these."),
        ("1.234,56", "GBP", "Write “1.234,56” as 1,234.56: the point separates decimals, the comma thousands."),
        ("45.001", "GBP", "“45.001” is too precise: GBP has 2 decimals."),
        ("1.234", "GBP", "If the point separates thousands, write 1,234.00."),
        ("45,00", "JPY", "“45,00” can mean 45 or 4,500. Write one of these."),
        ("45.50", "JPY", "“45.50” is too precise: JPY has no decimals."),
        ("45.000", "JPY", "If the point separates thousands, write 45,000."),
        ("1,234", "KWD", "“1,234” can mean 1.234 or 1,234.000. Write one of these."),
        ("1.2345", "KWD", "“1.2345” is too precise: KWD has 3 decimals."),
        ("-1", "GBP", "not negative"),
        ("−1", "GBP", "not negative"),
        ("€45", "GBP", "Enter an amount in GBP such as 45.00."),
        ("1e3", "GBP", "Enter an amount in GBP such as 45.00."),
        ("NaN", "GBP", "Enter an amount in GBP such as 45.00."),
        ("1..2", "GBP", "Enter an amount in GBP such as 45.00."),
        ("٤٥", "GBP", "Enter an amount in GBP such as 45.00."),
        ("1 234", "GBP", "Enter an amount in GBP such as 45.00."),
        ("", "JPY", "Enter an amount in JPY such as 45."),
        ("9" * 30, "GBP", "Enter at most £10,000,000,000.00."),
        ("9" * 3_000, "GBP", "Enter an amount in GBP such as 45.00."),
    ],
)
def test_an_ambiguous_or_too_precise_amount_is_refused(typed: str, currency: str, reason: str) -> None:
    with pytest.raises(InvalidAmount) as refused:
        parse_money(typed, currency, minor_max=MOST)
    assert reason in str(refused.value)


@given(st.integers(0, MOST), st.sampled_from(["JPY", "GBP", "KWD", "CHF", "XOF"]))
def test_a_written_amount_is_read_as_the_same_amount(minor: int, currency: str) -> None:
    assert parse_money(write_money(minor, currency), currency, minor_max=MOST) == minor


@given(st.text(alphabet="0123456789.,-+ eE%£$x\x00٤", max_size=12), st.sampled_from(["JPY", "GBP", "KWD"]))
def test_any_text_is_read_or_refused(text: str, currency: str) -> None:
    try:
        minor = parse_money(text, currency, minor_max=MOST)
    except InvalidAmount:
        return
    assert 0 <= minor <= MOST


@given(st.integers(0, 10_000))
def test_a_written_percentage_is_read_as_the_same_rate(rate: int) -> None:
    assert parse_percent(f"{write_percent(rate)}%", rate_max=10_000) == rate


@pytest.mark.parametrize(("typed", "reason"), [("7,5", "can mean"), ("7.555", "2 decimals"), ("101", "at most 100%")])
def test_a_wrong_percentage_is_refused(typed: str, reason: str) -> None:
    with pytest.raises(InvalidAmount, match=reason):
        parse_percent(typed, rate_max=10_000)


class PriceForm(forms.Form):
    price = MoneyField(minor_max=MOST)
    fee = MoneyField(minor_max=MOST, required=False, empty_value=0)
    rate = PercentField(rate_max=10_000, required=False)


def test_a_form_shows_and_reads_amounts_in_its_currency() -> None:
    shown = PriceForm(initial={"price": 4_500, "rate": 750})
    set_currency(shown.fields.values(), "GBP")
    assert 'value="45.00"' in str(shown["price"])
    assert "£" in str(shown["price"])
    assert 'value="7.5"' in str(shown["rate"])
    sent = PriceForm({"price": "45.00", "fee": "", "rate": "7.5%"}, initial={"price": 4_500, "fee": 0, "rate": 750})
    set_currency(sent.fields.values(), "GBP")
    assert sent.is_valid()
    assert (sent.cleaned_data, sent.changed_data) == ({"price": 4_500, "fee": 0, "rate": 750}, [])
    wrong = PriceForm({"price": "45,00"})
    set_currency(wrong.fields.values(), "GBP")
    assert wrong.errors == {"price": ["“45,00” can mean 45.00 or 4,500.00. Write one of these."]}
    assert 'value="45,00"' in str(wrong["price"])
    empty = PriceForm({"price": ""})
    set_currency(empty.fields.values(), "GBP")
    assert empty.errors == {"price": ["This field is required."]}


def test_a_new_currency_changes_an_amount_that_is_typed_the_same() -> None:
    sent = PriceForm({"price": "45.00"}, initial={"price": 4_500})
    set_currency(sent.fields.values(), "KWD")
    assert sent.is_valid()
    assert (sent.cleaned_data["price"], "price" in sent.changed_data) == (45_000, True)
