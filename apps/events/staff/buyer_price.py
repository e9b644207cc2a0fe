"""What a buyer pays for a ticket, while staff type its price: computed by the pricing that checkout uses."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django import forms
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, JsonResponse, QueryDict
from django.views.decorators.http import require_POST

from apps.events import event_views
from apps.events.changes import PRICE_MINOR_MAX
from apps.events.currencies import CODES
from apps.events.models import Category
from apps.events.organizers.membership_backend import permitted_organizers
from apps.events.pricing import FEE_MINOR_MAX, RATE_MAX, PricePolicy
from apps.kernel.form_fields.fields import MoneyField, PercentField
from apps.kernel.formatting import format_money

URL_NAME = "admin:events_buyer_price"
PERMISSIONS = ("events.add_event", "events.change_event", "events.change_category")
PRICES_MAX = 200
_PRICE_OF_FORM = re.compile(r"categories-[0-9]{1,4}-price_minor", re.ASCII)


def describe_buyer_price(price_minor: int, tax_rate: int | None, policy: PricePolicy, currency: str) -> str:
    """Return what the buyer pays, as "Buyer pays £47.25 incl. fees"."""
    total_minor = policy.place_total_minor(price_minor, tax_rate)
    if not total_minor:
        return "Free for the buyer"
    parts = []
    if policy.place_fee_minor(price_minor):
        parts.append("fees")
    if not policy.tax_included and policy.with_tax_rate(tax_rate).tax_rate:
        parts.append("tax")
    text = f"Buyer pays {format_money(total_minor, currency)}"
    if parts:
        text += f" incl. {' and '.join(parts)}"
    if policy.order_fee_minor:
        text += f", plus {format_money(policy.order_fee_total_minor, currency)} per order"
    return text


def describe_buyer_prices(event: event_views.EventView) -> dict[str, str]:
    """Return what the buyer pays for each price category of the event, by the category's key."""
    rows = Category.objects.filter(event_id=event.id).values_list("key", "price_minor", "tax_rate")
    return {
        key: describe_buyer_price(price_minor, tax_rate, event.price_policy, event.currency)
        for key, price_minor, tax_rate in rows
    }


@dataclass(frozen=True, slots=True)
class _Notes:
    """The texts below the fields of a form, and which of them are errors, by field name."""

    texts: dict[str, str]
    errors: list[str]

    def clean(self, name: str, field: forms.Field, given: Mapping[str, str]) -> Any:
        """Return the field's value, or note its error and return None."""
        try:
            return field.clean(given.get(name, ""))
        except forms.ValidationError as error:
            self.texts[name] = " ".join(error.messages)
            self.errors.append(name)
            return None


def note_draft(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the notes for the form of an event: what the buyer pays for each price, and errors in amounts."""
    notes = _Notes({}, [])
    currency = given.get("currency", "")
    if currency not in CODES:
        return {"texts": {}, "errors": []}
    policy = PricePolicy(
        ticket_fee_minor=notes.clean("on_sale-0-ticket_fee_minor", _money(currency, FEE_MINOR_MAX), given) or 0,
        ticket_fee_rate=notes.clean("on_sale-0-ticket_fee_rate", _rate(), given) or 0,
        order_fee_minor=notes.clean("on_sale-0-order_fee_minor", _money(currency, FEE_MINOR_MAX), given) or 0,
        waives_fees_when_free="on_sale-0-waives_fees_when_free" in given,
        tax_rate=notes.clean("on_sale-0-tax_rate", _rate(), given) or 0,
        tax_included="on_sale-0-tax_included" in given,
    )
    prices = [name for name in given if _PRICE_OF_FORM.fullmatch(name)][:PRICES_MAX]
    for name in prices:
        price_minor = notes.clean(name, _money(currency, PRICE_MINOR_MAX), given)
        tax_rate = notes.clean(name.replace("price_minor", "tax_rate"), _rate(), given)
        if price_minor is not None:
            notes.texts[name] = describe_buyer_price(price_minor, tax_rate, policy, currency)
    return {"texts": notes.texts, "errors": notes.errors}


def note_published(event: event_views.EventView, given: QueryDict) -> dict[str, Any]:
    """Return the note for a new price of a published event."""
    notes = _Notes({}, [])
    price_minor = notes.clean("price", _money(event.currency, PRICE_MINOR_MAX), given)
    if price_minor is not None:
        key = given.get("category", "")
        rates = Category.objects.filter(event_id=event.id, key=key) if key.isprintable() else Category.objects.none()
        tax_rate = rates.values_list("tax_rate", flat=True).first()
        notes.texts["price"] = describe_buyer_price(price_minor, tax_rate, event.price_policy, event.currency)
    return {"texts": notes.texts, "errors": notes.errors}


def note_tiers(event: event_views.EventView, given: QueryDict) -> dict[str, Any]:
    """Return the notes for the page of a draft's prices: `price-0` is the price of the first `tier`, and so on."""
    notes = _Notes({}, [])
    rates = dict(Category.objects.filter(event_id=event.id).values_list("key", "tax_rate"))
    for number, key in enumerate(given.getlist("tier")[:PRICES_MAX]):
        name = f"price-{number}"
        price_minor = notes.clean(name, _money(event.currency, PRICE_MINOR_MAX), given)
        if price_minor is not None:
            notes.texts[name] = describe_buyer_price(price_minor, rates.get(key), event.price_policy, event.currency)
    return {"texts": notes.texts, "errors": notes.errors}


@require_POST
def buyer_price_view(request: HttpRequest) -> JsonResponse:
    """Return the notes for the posted form: of an event's form or, with the parameter `event`, of a draft's prices
    (with `tier`) or a published event's new price."""
    if not any(_may(request, permission) for permission in PERMISSIONS):
        raise PermissionDenied
    event_id = request.GET.get("event", "")
    if not event_id:
        return JsonResponse(note_draft(request.POST))
    try:
        event = event_views.get_event_by_id(int(event_id) if event_id.isascii() and event_id.isdigit() else 0)
    except event_views.EventNotFound:
        return JsonResponse({"texts": {}, "errors": []}, status=404)
    organizers = permitted_organizers(request.user, "events.change_category")
    if organizers is not None and event.organizer_id not in organizers:
        raise PermissionDenied
    note = note_tiers if "tier" in request.POST else note_published
    return JsonResponse(note(event, request.POST))


def _may(request: HttpRequest, permission: str) -> bool:
    return bool(request.user.has_perm(permission)) and permitted_organizers(request.user, permission) != frozenset()


def _money(currency: str, minor_max: int) -> MoneyField:
    field = MoneyField(minor_max=minor_max, required=False)
    field.currency = currency
    return field


def _rate() -> PercentField:
    return PercentField(rate_max=RATE_MAX, required=False)
