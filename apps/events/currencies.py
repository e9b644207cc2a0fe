"""Supported currencies: ISO 4217 without the codes for metals, funds, testing and "no currency"; and their choice in
forms."""

from collections.abc import Sequence
from functools import cache

from babel.core import get_global
from babel.numbers import get_territory_currencies

from apps.kernel.formatting import currency_name

CODES = frozenset((
    "AED", "AFN", "ALL", "AMD", "AOA", "ARS", "AUD", "AWG", "AZN", "BAM", "BBD", "BDT", "BGN", "BHD",
    "BIF", "BMD", "BND", "BOB", "BRL", "BSD", "BTN", "BWP", "BYN", "BZD", "CAD", "CDF", "CHF", "CLP",
    "CNY", "COP", "CRC", "CUP", "CVE", "CZK", "DJF", "DKK", "DOP", "DZD", "EGP", "ERN", "ETB", "EUR",
    "FJD", "FKP", "GBP", "GEL", "GHS", "GIP", "GMD", "GNF", "GTQ", "GYD", "HKD", "HNL", "HTG", "HUF",
    "IDR", "ILS", "INR", "IQD", "IRR", "ISK", "JMD", "JOD", "JPY", "KES", "KGS", "KHR", "KMF", "KPW",
    "KRW", "KWD", "KYD", "KZT", "LAK", "LBP", "LKR", "LRD", "LSL", "LYD", "MAD", "MDL", "MGA", "MKD",
    "MMK", "MNT", "MOP", "MRU", "MUR", "MVR", "MWK", "MXN", "MYR", "MZN", "NAD", "NGN", "NIO", "NOK",
    "NPR", "NZD", "OMR", "PAB", "PEN", "PGK", "PHP", "PKR", "PLN", "PYG", "QAR", "RON", "RSD", "RUB",
    "RWF", "SAR", "SBD", "SCR", "SDG", "SEK", "SGD", "SHP", "SLE", "SOS", "SRD", "SSP", "STN", "SVC",
    "SYP", "SZL", "THB", "TJS", "TMT", "TND", "TOP", "TRY", "TTD", "TWD", "TZS", "UAH", "UGX", "USD",
    "UYU", "UZS", "VED", "VES", "VND", "VUV", "WST", "XAF", "XCD", "XCG", "XOF", "XPF", "YER", "ZAR",
    "ZMW", "ZWG",
))  # fmt: skip

_OFTEN_USED = ("EUR", "GBP", "USD", "AUD", "CAD", "CHF", "DKK", "JPY", "NOK", "NZD", "PLN", "SEK")


@cache
def currency_choices() -> Sequence[tuple[str, Sequence[tuple[str, str]]]]:
    """Return the currencies for a form, by name: those that are used often, and all others."""

    def named(codes: Sequence[str]) -> tuple[tuple[str, str], ...]:
        return tuple(sorted(((code, f"{currency_name(code)} ({code})") for code in codes), key=lambda one: one[1]))

    others = sorted(CODES - frozenset(_OFTEN_USED))
    return (("Often used", named(_OFTEN_USED)), ("All others", named(others)))


@cache
def currency_of_zone(timezone: str) -> str:
    """Return the currency that is used today where this time zone is; "" if it is unknown."""
    territory = get_global("zone_territories").get(timezone, "")
    used = get_territory_currencies(territory) if territory else []
    return used[0] if used and used[0] in CODES else ""
