"""Template filters and tags: money, durations, venue times and icons."""

from datetime import datetime, timedelta, tzinfo
from functools import cache, lru_cache
from typing import Any, SupportsInt
from zoneinfo import ZoneInfo

from django import template
from django.conf import settings
from django.template.base import NodeList, Parser, Token
from django.template.context import Context
from django.templatetags.static import static
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.kernel import formatting
from apps.kernel.form_fields import amounts
from apps.kernel.form_fields.fields import AmountInput

register = template.Library()


def _is_missing(value: object) -> bool:
    return value is None or value == ""


@register.filter
def money(amount_minor: SupportsInt | None, currency: str) -> str:
    """Return `amount_minor` of `currency` as "$1,250.00"; "" for a missing amount."""
    if _is_missing(amount_minor):
        return ""
    return formatting.format_money(int(amount_minor), currency)  # type: ignore[arg-type]


@register.simple_tag
def money_input(name: str, currency: str, value: object = "", note: str = "", **attrs: Any) -> SafeString:
    """Return an input for an amount of money, with the currency's sign, and the note below it. `value` is text as it
    was typed, or an int of the smallest unit; an underscore in the name of an attribute becomes a hyphen."""
    widget = AmountInput(sign=formatting.currency_sign(currency), kind="money")
    widget.note = note
    shown = amounts.write_money(value, currency) if isinstance(value, int) else value
    return widget.render(name, shown, {key.replace("_", "-"): given for key, given in attrs.items()})


@register.filter
def thousands(count: int) -> str:
    """Return a count with thousands separators, "12,500"."""
    return f"{count:,}"


@register.filter
def duration(value: timedelta | SupportsInt | None) -> str:
    """Return seconds, or a timedelta, in the two largest units that are not zero: "2 days 4 hours", "9 minutes"."""
    if _is_missing(value):
        return ""
    return formatting.format_duration(value if isinstance(value, timedelta) else int(value))  # type: ignore[arg-type]


@register.filter
def short_duration(value: timedelta | SupportsInt | None) -> str:
    """Return seconds, or a timedelta, as "1 min 30 s"; "" for a missing value."""
    if _is_missing(value):
        return ""
    return formatting.format_short_duration(value if isinstance(value, timedelta) else int(value))  # type: ignore[arg-type]


@register.filter
def at_venue(moment: datetime | None, zone: str | tzinfo | None = None) -> datetime | str:
    """Return `moment` in the venue's time zone (an IANA name), or in the site's zone if there is no venue."""
    if not isinstance(moment, datetime):
        return ""
    venue_zone = ZoneInfo(zone) if isinstance(zone, str) and zone else zone or timezone.get_current_timezone()
    local = timezone.localtime(moment, venue_zone)
    # Marked so that Django's date filter does not convert it back to the site's zone.
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
    """Render the content up to `endonce` once per process: for content that depends only on the deployment, such as
    the URLs in the head of every page."""
    nodes = parser.parse(("endonce",))
    parser.delete_first_token()
    return _RenderOnceNode(nodes)


@register.filter
def grouped(code: str) -> str:
    """Return a long code in groups of four, "ABCD EFGH", to be read aloud."""
    return " ".join(code[start : start + 4] for start in range(0, len(code), 4))


@register.simple_tag
def mailbox_url() -> str:
    """Return the URL of the demo's mailbox; empty where mails are sent."""
    return reverse("mailbox") if settings.MAILBOX_FOLDER else ""


@register.simple_tag
@cache
def icon(name: str) -> SafeString:
    """Return an icon of the icon sheet, hidden from screen readers: the text beside it carries the meaning."""
    return format_html(
        '<svg class="icon" width="20" height="20" aria-hidden="true" focusable="false"><use href="{}#{}"></use></svg>',
        static("img/icons.svg"),
        name,
    )


@register.simple_tag
@lru_cache(maxsize=1_024)
def swatch(color: str) -> SafeString:
    """Return a price category's color (#rrggbb) as a dot, without a style attribute (content policy)."""
    return format_html(
        '<svg class="swatch" viewBox="0 0 12 12" width="12" height="12" aria-hidden="true" focusable="false">'
        '<circle cx="6" cy="6" r="5.5" fill="{}"/></svg>',
        color,
    )
