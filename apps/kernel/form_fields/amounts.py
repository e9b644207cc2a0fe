"""Parses and writes amounts as people type them: "45.00" is 4,500 pence, "7.5" percent is 750 basis points, "1:30" is
90 seconds.

Babel parses, strictly and in English: the point separates decimals, the comma thousands. Text that a reader of another
language would read as another amount, such as "45,00", is refused, and so is an amount with more decimals than its
currency has. An error lists the possible readings.
"""

import re
from decimal import Decimal

from babel import Locale
from babel.numbers import NumberFormatError, get_currency_symbol, parse_decimal

from apps.kernel.formatting import format_money, format_number, format_short_duration, minor_digits

_LOCALE = Locale("en")
_RATE_DECIMALS = 2
_CHARACTERS_MAX = 40
_EXCHANGED = str.maketrans(",.", ".,")
_GROUPED = re.compile(r"[0-9]+(,[0-9]+)*(\.[0-9]+)?", re.ASCII)
SECONDS_DIGITS_MAX = 6
_SECONDS = re.compile(rf"[0-9]{{1,{SECONDS_DIGITS_MAX}}}", re.ASCII)
_CLOCK = re.compile(r"([0-9]{1,4}):([0-5][0-9])", re.ASCII)
_DURATION = re.compile(r"(?:([0-9]{1,3}) ?h ?)?(?:([0-9]{1,4}) ?min ?)?(?:([0-9]{1,6}) ?s)?", re.ASCII)
_NUMBER = re.compile(r"[0-9][0-9.,]*|\.[0-9]+", re.ASCII)


class InvalidAmount(ValueError):
    """The text is not an amount, or can be read as different amounts. The message is a sentence for its author."""


def parse_money(text: str, currency: str, *, minor_min: int = 0, minor_max: int) -> int:
    """Return the amount in the currency's smallest unit. The text may contain the currency's sign or code. Raises
    InvalidAmount."""
    digits = minor_digits(currency)
    example = f"an amount in {currency} such as {format_number(Decimal(45), digits)}"
    number = _parse_number(_without_sign(text, currency), digits, currency, example)
    minor = int(number.scaleb(digits))
    if minor < minor_min:
        raise InvalidAmount(f"Enter at least {format_money(minor_min, currency)}.")
    if minor > minor_max:
        raise InvalidAmount(f"Enter at most {format_money(minor_max, currency)}.")
    return minor


def write_money(minor: int, currency: str) -> str:
    """Return the amount as it is typed: "1250.00", without a sign or separators, so that `parse_money` reads it."""
    digits = minor_digits(currency)
    return format_number(Decimal(minor).scaleb(-digits), digits, grouped=False)


def parse_percent(text: str, *, rate_max: int) -> int:
    """Return a percentage in basis points. The text may end with a percent sign. Raises InvalidAmount."""
    plain = text.strip().removesuffix("%").rstrip()
    number = _parse_number(plain, _RATE_DECIMALS, "a percentage", "a percentage such as 7.5")
    rate = int(number.scaleb(_RATE_DECIMALS))
    if rate > rate_max:
        raise InvalidAmount(f"Enter at most {write_percent(rate_max)}%.")
    return rate


def write_percent(rate: int) -> str:
    """Return basis points as a percentage is typed: "7.5"."""
    return f"{Decimal(rate).scaleb(-_RATE_DECIMALS).normalize():f}"


def parse_duration(text: str, *, seconds_min: int, seconds_max: int) -> int:
    """Return a duration in seconds. A plain number is in seconds; "1:30", "1 min 30 s" and "2 h" are durations, too.
    Raises InvalidAmount."""
    text = " ".join(text.lower().split())
    clock, words = _CLOCK.fullmatch(text), _DURATION.fullmatch(text)
    if _SECONDS.fullmatch(text):
        seconds = int(text)
    elif clock is not None:
        seconds = int(clock[1]) * 60 + int(clock[2])
    elif words is not None and any(words.groups()):
        hours, minutes, rest = (int(part or 0) for part in words.groups())
        seconds = hours * 3_600 + minutes * 60 + rest
    else:
        raise InvalidAmount("Enter seconds, such as 90, or a time such as 1 min 30 s.")
    if seconds < seconds_min:
        raise InvalidAmount(f"Enter at least {format_short_duration(seconds_min)}.")
    if seconds > seconds_max:
        raise InvalidAmount(f"Enter at most {format_short_duration(seconds_max)}.")
    return seconds


def _without_sign(text: str, currency: str) -> str:
    """Return the text without the sign or the code of this currency at its beginning or end."""
    text = text.strip()
    for sign in (currency, get_currency_symbol(currency, locale=_LOCALE)):
        if sign and text.upper().startswith(sign.upper()):
            return text[len(sign) :].strip()
        if sign and text.upper().endswith(sign.upper()):
            return text[: -len(sign)].strip()
    return text


def _parse_number(text: str, decimals: int, of: str, example: str) -> Decimal:
    if text.startswith(("-", "\N{MINUS SIGN}")):
        raise InvalidAmount("Enter an amount that is not negative.")
    if len(text) > _CHARACTERS_MAX or not _NUMBER.fullmatch(text):
        raise InvalidAmount(f"Enter {example}.")
    # With three decimals, "1,234" is a thousand or a little more than one, depending on its author's language.
    is_ambiguous = decimals == 3 and text.count(",") == 1 and "." not in text
    try:
        if is_ambiguous:
            raise NumberFormatError(text)
        number = parse_decimal(text, locale=_LOCALE, strict=True)
    except NumberFormatError as error:
        raise InvalidAmount(_describe_readings(text, decimals, example)) from error
    fraction = text.partition(".")[2]
    digits = len(fraction)
    # "45.00" yen is exact, but "45.000" may be thousands.
    if digits > decimals and (fraction.strip("0") or digits >= 3):
        has = "has no decimals" if not decimals else f"has {decimals} decimals"
        thousands = ""
        if digits == 3 and "," not in text:
            whole = format_number(Decimal(text.replace(".", "")), decimals)
            thousands = f" If the point separates thousands, write {whole}."
        raise InvalidAmount(f"“{text}” is too precise: {of} {has}.{thousands}")
    return number


def _describe_readings(text: str, decimals: int, example: str) -> str:
    """Return the error for text with separators in unexpected positions, with each amount that it may mean."""
    readings = []
    # As its author's language may write it, with the separators exchanged, and with thousands separated elsewhere.
    exchanged, ungrouped = text.translate(_EXCHANGED), text.replace(",", "") if _GROUPED.fullmatch(text) else ""
    for plain in (exchanged, ungrouped):
        try:
            number = parse_decimal(plain, locale=_LOCALE, strict=True)
        except NumberFormatError:
            continue
        if len(plain.partition(".")[2].rstrip("0")) <= decimals:
            reading = format_number(number, decimals)
            if reading not in readings:
                readings.append(reading)
    if not readings:
        return f"Enter {example}."
    if len(readings) == 1:
        return f"Write “{text}” as {readings[0]}: the point separates decimals, the comma thousands."
    return f"“{text}” can mean {' or '.join(readings)}. Write one of these."
