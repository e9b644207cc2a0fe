"""Formats money, dates and durations for people, in English, with Babel's data (Unicode CLDR).

Pages use these through the template filters; mail, PDF, admin and commands call them directly.
"""

import unicodedata
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from functools import cache, lru_cache
from zoneinfo import ZoneInfo

from babel import Locale
from babel.dates import format_datetime as _babel_datetime
from babel.numbers import NumberPattern, get_currency_name, get_currency_symbol, parse_pattern
from babel.units import format_unit

_LOCALE = Locale("en")

# Patterns of Unicode CLDR (https://www.unicode.org/reports/tr35/tr35-dates.html#Date_Field_Symbol_Table).
DATE = "d MMMM y"
DATE_TIME = "d MMMM y, HH:mm"
SHORT_DATE_TIME = "d MMM y, HH:mm:ss"
WEEKDAY_DATE_TIME = "EEEE d MMMM y, HH:mm"
DAY_TIME = "d MMMM, HH:mm"
TIME = "HH:mm"
LOG_MINUTE = "dd MMM HH:mm"
LOG_SECOND = "dd MMM HH:mm:ss"

# The ISO 4217 currencies without two decimal digits. Amounts here count ISO's smallest unit, as payment providers do.
# Babel has CLDR's digits, which are those in everyday use: for 13 currencies they are fewer (among them the rial and
# the Iraqi dinar).
_WITHOUT_MINOR = (
    "BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "VND", "VUV", "XAF", "XOF", "XPF",
)  # fmt: skip
_MINOR_DIGITS = {
    **dict.fromkeys(_WITHOUT_MINOR, 0),
    **dict.fromkeys(("BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"), 3),
}


def minor_digits(currency: str) -> int:
    """Return the currency's number of decimal digits by ISO 4217."""
    return _MINOR_DIGITS.get(currency, 2)


@lru_cache(maxsize=4_096)
def format_money(minor: int | None, currency: str) -> str:
    """Return `minor` of the currency's smallest unit as "$1,250.00", with a true minus sign below zero; "" for None.

    A whole amount keeps its minor digits, so that prices in a column line up.
    """
    if minor is None:
        return ""
    digits = minor_digits(currency)
    amount = Decimal(abs(minor)).scaleb(-digits)
    number = _number_pattern(digits).apply(amount, _LOCALE, currency=currency, currency_digits=False)
    return f"{'−' if minor < 0 else ''}{_sign(currency)}{number}"


def format_number(number: Decimal, decimals: int, *, grouped: bool = True) -> str:
    """Return the number with this many decimals, as "1,250.00", or ungrouped as "1250.00"."""
    return _number_pattern(decimals).apply(number, _LOCALE, currency_digits=False, group_separator=grouped)


def currency_sign(currency: str) -> str:
    """Return the sign that stands before an amount of the currency: "£", "CA$", or the code "CHF"."""
    return _sign(currency).rstrip()


def currency_name(currency: str) -> str:
    """Return the currency's English name, as "British Pound"."""
    return get_currency_name(currency, locale=_LOCALE)


def format_duration(value: timedelta | int) -> str:
    """Return seconds, or a timedelta, in the two largest units that are not zero: "2 days 4 hours", "9 minutes"."""
    left = max(int(value.total_seconds()) if isinstance(value, timedelta) else value, 0)
    parts: list[str] = []
    for unit, seconds in (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1)):
        count, left = divmod(left, seconds)
        if count and len(parts) < 2:
            parts.append(_unit(count, unit))
        elif parts:
            break
    return " ".join(parts) or _unit(0, "second")


def format_short_duration(value: timedelta | int) -> str:
    """Return seconds, or a timedelta, as "1 min 30 s", "10 min" or "2 h"."""
    left = max(int(value.total_seconds()) if isinstance(value, timedelta) else value, 0)
    minutes, seconds = divmod(left, 60)
    hours, minutes = divmod(minutes, 60)
    parts = [f"{count} {unit}" for count, unit in ((hours, "h"), (minutes, "min"), (seconds, "s")) if count]
    return " ".join(parts) or "0 s"


def format_datetime(
    moment: datetime, zone: str | tzinfo, pattern: str = DATE_TIME, *, with_zone_name: bool = False
) -> str:
    """Return the moment on the clock of `zone` (an IANA name or a tzinfo), as "1 April 2027, 19:30".

    `with_zone_name` appends the zone's short name, " (CEST)". The name is from the IANA database: CLDR has short
    English names for American zones only, and would write "+0200".
    """
    local = moment.astimezone(ZoneInfo(zone) if isinstance(zone, str) else zone)
    # Babel converts to the given zone, which is the one that `local` already has.
    text = _babel_datetime(local, pattern, tzinfo=local.tzinfo, locale=_LOCALE)
    return f"{text} ({local:%Z})" if with_zone_name else text


def format_utc(moment: datetime, pattern: str = LOG_SECOND) -> str:
    """Return the moment in UTC for logs and commands, as "01 Apr 17:30:05"."""
    return format_datetime(moment, UTC, pattern)


@cache
def _number_pattern(digits: int) -> NumberPattern:
    return parse_pattern(f"#,##0.{'0' * digits}" if digits else "#,##0")


@cache
def _sign(currency: str) -> str:
    """Return the currency's sign, with a no-break space if CLDR puts one before the digits: after "CHF", not after "$".

    Browsers place the sign in the same way.
    """
    # PDF fonts lack the narrow no-break space in the sign of the West African franc.
    sign = get_currency_symbol(currency, locale=_LOCALE).replace("\N{NARROW NO-BREAK SPACE}", "\N{NO-BREAK SPACE}")
    return sign if unicodedata.category(sign[-1])[0] == "S" else f"{sign}\N{NO-BREAK SPACE}"


@lru_cache(maxsize=1_024)
def _unit(count: int, unit: str) -> str:
    return format_unit(count, f"duration-{unit}", locale=_LOCALE)
