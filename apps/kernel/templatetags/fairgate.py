"""How money, durations, venue times and icons are written on every page."""

from datetime import datetime, timedelta, tzinfo
from decimal import Decimal
from functools import cache, lru_cache
from typing import SupportsInt
from zoneinfo import ZoneInfo

from django import template
from django.template.base import NodeList, Parser, Token
from django.template.context import Context
from django.templatetags.static import static
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

register = template.Library()

# ISO 4217 currencies whose smallest unit is not a hundredth; every other one has two digits.
_WITHOUT_MINOR = (
    "BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "VND", "VUV", "XAF", "XOF", "XPF",
)  # fmt: skip
_MINOR_DIGITS = {
    **dict.fromkeys(_WITHOUT_MINOR, 0),
    **dict.fromkeys(("BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"), 3),
}
# The signs a browser's own English formatter uses, so that a total counted on the page reads like one sent with it.
_SIGNS = {
    "USD": "$", "EUR": "€", "GBP": "£", "JPY": "¥", "INR": "₹", "KRW": "₩", "ILS": "₪", "VND": "₫", "CNY": "CN¥",
    "CAD": "CA$", "AUD": "A$", "NZD": "NZ$", "MXN": "MX$", "BRL": "R$", "TWD": "NT$", "HKD": "HK$", "PHP": "₱",
}  # fmt: skip


def _is_missing(value: object) -> bool:
    return value is None or value == ""


@register.filter
def money(amount_minor: SupportsInt | None, currency: str) -> str:
    """`amount_minor` of `currency` as a buyer reads it, "$1,250.00"; nothing for nothing.

    A whole amount keeps its minor digits: prices in one column must line up.
    """
    if _is_missing(amount_minor):
        return ""
    return _money(int(amount_minor), currency)  # type: ignore[arg-type]


@lru_cache(maxsize=1_024)
def _money(minor: int, currency: str) -> str:
    digits = _MINOR_DIGITS.get(currency, 2)
    number = f"{Decimal(abs(minor)).scaleb(-digits):,.{digits}f}"
    sign = _SIGNS.get(currency, f"{currency}\N{NO-BREAK SPACE}")
    return f"{'−' if minor < 0 else ''}{sign}{number}"


@register.filter
def thousands(count: int) -> str:
    """A count as one reads it, "12,500"."""
    return f"{count:,}"


@register.filter
def duration(value: timedelta | SupportsInt | None) -> str:
    """Seconds, or a timedelta, in the two largest units that say something: "2 days 4 hours", "9 minutes"."""
    if _is_missing(value):
        return ""
    left = int(value.total_seconds()) if isinstance(value, timedelta) else int(value)  # type: ignore[arg-type]
    left = max(left, 0)
    parts: list[str] = []
    for unit, seconds in (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1)):
        count, left = divmod(left, seconds)
        if count and len(parts) < 2:
            parts.append(f"{count} {unit}{'' if count == 1 else 's'}")
        elif parts:
            break
    return " ".join(parts) or "0 seconds"


@register.filter
def at_venue(moment: datetime | None, zone: str | tzinfo | None = None) -> datetime | str:
    """`moment` on the venue's clock (an IANA name), or on the site's own where the page knows no venue."""
    if not isinstance(moment, datetime):
        return ""
    place = ZoneInfo(zone) if isinstance(zone, str) and zone else zone or timezone.get_current_timezone()
    local = timezone.localtime(moment, place)
    # Django's date filter would move it back to the site's zone without this mark.
    return _Local.of(local)


class _Local(datetime):
    convert_to_local_time = False

    @classmethod
    def of(cls, moment: datetime) -> "_Local":
        return cls.combine(moment.date(), moment.timetz())


class _RenderOnceNode(template.Node):
    def __init__(self, nodes: NodeList) -> None:
        self.nodes = nodes
        self.text: SafeString | None = None

    def render(self, context: Context) -> SafeString:
        if self.text is None:
            self.text = self.nodes.render(context)
        return self.text


@register.tag
def once(parser: Parser, token: Token) -> _RenderOnceNode:
    """What stands between is written once in the life of a process: it is for what hangs on nothing but the house, such
    as the addresses in the head of every page."""
    nodes = parser.parse(("endonce",))
    parser.delete_first_token()
    return _RenderOnceNode(nodes)


@register.filter
def grouped(code: str) -> str:
    """A long code in fours, "ABCD EFGH", as one reads it out at a door."""
    return " ".join(code[start : start + 4] for start in range(0, len(code), 4))


@register.simple_tag
@cache
def icon(name: str) -> SafeString:
    """One drawing of the icon sheet, hidden from screen readers: the words beside it carry the meaning."""
    return format_html(
        '<svg class="icon" width="20" height="20" aria-hidden="true" focusable="false"><use href="{}#{}"></use></svg>',
        static("img/icons.svg"),
        name,
    )


@register.simple_tag
@lru_cache(maxsize=1_024)
def swatch(color: str) -> SafeString:
    """A price category's color (#rrggbb) as a dot; no style attribute, so that the content policy can stay strict."""
    return format_html(
        '<svg class="swatch" viewBox="0 0 12 12" width="12" height="12" aria-hidden="true" focusable="false">'
        '<circle cx="6" cy="6" r="5.5" fill="{}"/></svg>',
        color,
    )
