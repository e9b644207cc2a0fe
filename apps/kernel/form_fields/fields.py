"""Form fields that show a stored number as people write it: money with its currency's sign, percentages, and
durations."""

from collections.abc import Iterable
from typing import Any

from django import forms
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.kernel.form_fields.amounts import (
    SECONDS_DIGITS_MAX,
    InvalidAmount,
    parse_duration,
    parse_money,
    parse_percent,
    write_money,
    write_percent,
)
from apps.kernel.formatting import currency_sign, format_short_duration


class AmountInput(forms.TextInput):
    """A text input between a sign before it and a unit after it, with a line below it that a script may update.

    It is Django's plain text input, so that the admin's theme styles it.
    """

    class Media:
        css = {"all": ("css/form-fields.css",)}
        js = ("js/amount-fields.js",)

    def __init__(self, attrs: dict[str, Any] | None = None, *, sign: str = "", unit: str = "", kind: str = "") -> None:
        super().__init__({"inputmode": "decimal", "autocomplete": "off", "maxlength": 40} | (attrs or {}))
        self.sign, self.unit, self.kind, self.note = sign, unit, kind, ""
        """`note` is the text of the line below."""

    def render(self, name: str, value: Any, attrs: dict[str, Any] | None = None, renderer: Any = None) -> SafeString:
        given = super().render(name, value, (attrs or {}) | {"data-amount": self.kind}, renderer)
        return format_html(
            '<span class="amount"><span class="amount__line"><span class="amount__sign">{}</span>{}'
            '<span class="amount__unit">{}</span></span>'
            '<output class="amount__note" for="{}">{}</output></span>',
            self.sign, given, self.unit, (attrs or {}).get("id", name), self.note,
        )  # fmt: skip


class _AmountField(forms.Field):
    """A whole number that is typed in another unit. `empty_value` is the number for an empty field."""

    widget: Any

    def __init__(self, *, empty_value: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.empty_value = empty_value

    def parse(self, text: str) -> int:
        raise NotImplementedError

    def write(self, value: int) -> str:
        raise NotImplementedError

    def to_python(self, value: Any) -> int | None:
        text = str(value or "").strip() if not isinstance(value, int) else self.write(value)
        if not text:
            return self.empty_value
        try:
            return self.parse(text)
        except InvalidAmount as error:
            raise forms.ValidationError(str(error), code="invalid") from error

    def prepare_value(self, value: Any) -> Any:
        return self.write(value) if isinstance(value, int) else value

    def has_changed(self, initial: Any, data: Any) -> bool:
        try:
            return bool(self.to_python(data) != (self.empty_value if initial is None else initial))
        except forms.ValidationError:
            return True


class MoneyField(_AmountField):
    """An amount in the smallest unit of `currency`, typed as "45.00". The form sets the currency before it is used:
    an amount without a known currency cannot be read."""

    def __init__(self, *, minor_min: int = 0, minor_max: int, **kwargs: Any) -> None:
        super().__init__(widget=AmountInput(kind="money"), **kwargs)
        self.minor_min, self.minor_max = minor_min, minor_max
        self._currency = ""

    @property
    def currency(self) -> str:
        return self._currency

    @currency.setter
    def currency(self, currency: str) -> None:
        self._currency = currency
        self.widget.sign = currency_sign(currency) if currency else ""

    def parse(self, text: str) -> int:
        if not self._currency:
            raise InvalidAmount("The currency is not chosen yet.")
        return parse_money(text, self._currency, minor_min=self.minor_min, minor_max=self.minor_max)

    def write(self, value: int) -> str:
        return write_money(value, self._currency) if self._currency else ""


class PercentField(_AmountField):
    """Basis points, typed as a percentage."""

    def __init__(self, *, rate_max: int, **kwargs: Any) -> None:
        super().__init__(widget=AmountInput(unit="%", kind="percent"), **kwargs)
        self.rate_max = rate_max

    def parse(self, text: str) -> int:
        return parse_percent(text, rate_max=self.rate_max)

    def write(self, value: int) -> str:
        return write_percent(value)


class DurationField(_AmountField):
    """Seconds. The note below the field has them in minutes."""

    def __init__(self, *, seconds_min: int, seconds_max: int, **kwargs: Any) -> None:
        super().__init__(widget=AmountInput(unit="seconds", kind="duration"), **kwargs)
        self.seconds_min, self.seconds_max = seconds_min, seconds_max

    def parse(self, text: str) -> int:
        return parse_duration(text, seconds_min=self.seconds_min, seconds_max=self.seconds_max)

    def write(self, value: int) -> str:
        return str(value)

    def prepare_value(self, value: Any) -> Any:
        # The bound field calls this right before it renders the widget.
        seconds = str(value or "")
        is_number = seconds.isascii() and seconds.isdigit() and len(seconds) <= SECONDS_DIGITS_MAX
        self.widget.note = format_short_duration(int(seconds)) if is_number else ""
        return super().prepare_value(value)


def set_currency(fields: Iterable[forms.Field], currency: str) -> None:
    """Set the currency of all amounts of money among the fields."""
    for field in fields:
        if isinstance(field, MoneyField):
            field.currency = currency
