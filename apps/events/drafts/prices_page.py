"""The admin page with the prices of a draft: one field for each price category."""

from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin import AdminSite
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from apps.events import event_views
from apps.events.changes import PRICE_MINOR_MAX
from apps.events.drafts.large_plans import alone_if_large
from apps.events.drafts.publish_page import find_event
from apps.events.drafts.tiers import Tier, list_tiers, write_prices
from apps.events.models import Event
from apps.events.publication import PUBLISH_LOCK_MS, PUBLISH_STATEMENT_MS, lock_event
from apps.events.staff import buyer_price
from apps.kernel.db import transactions
from apps.kernel.form_fields.fields import MoneyField, set_currency


class PricesForm(forms.Form):
    """One price for each tier, by its number in the list."""

    def __init__(self, tiers: Sequence[Tier], event: Event, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.tiers = tiers
        notes = buyer_price.describe_buyer_prices(event_views.get_event_by_id(event.pk))
        notes_url = f"{reverse(buyer_price.URL_NAME)}?event={event.pk}"
        for number, tier in enumerate(tiers):
            name = f"price-{number}"
            self.fields[name] = field = MoneyField(
                minor_max=PRICE_MINOR_MAX, label=tier.name, initial=tier.price_minor,
                error_messages={"required": "Enter the price; 0 for free tickets."},
            )  # fmt: skip
            field.widget.attrs["data-notes-url"] = notes_url
            if not self.is_bound:
                field.widget.note = notes.get(tier.key, "")
        set_currency(self.fields.values(), event.currency)

    def rows(self) -> list[tuple[Tier, forms.BoundField]]:
        return [(tier, self[f"price-{number}"]) for number, tier in enumerate(self.tiers)]

    def prices(self) -> Mapping[str, int]:
        return {tier.key: self.cleaned_data[f"price-{number}"] for number, tier in enumerate(self.tiers)}


@require_http_methods(["GET", "HEAD", "POST"])
@alone_if_large
def prices_page(request: HttpRequest, event_id: int, site: AdminSite) -> HttpResponse:
    """Show the draft's prices, or store those that were entered and go on to the checklist."""
    event = find_event(request, event_id)
    if event.status != Event.Status.DRAFT:
        return _published(request, event)
    if request.method != "POST":
        return _page(request, event, PricesForm(list_tiers(event), event), site)
    with transactions.write(lock_ms=PUBLISH_LOCK_MS, statement_ms=PUBLISH_STATEMENT_MS):
        # Locked before the form is read: a concurrent publication or change of the plan is finished then.
        try:
            locked = lock_event(event.pk)
        except event_views.EventNotFound as error:
            raise Http404 from error
        if locked.status != Event.Status.DRAFT:
            return _published(request, event)
        form = PricesForm(list_tiers(locked), locked, request.POST)
        is_valid = form.is_valid() and _has_seen(request, form.tiers)
        if is_valid:
            write_prices(locked, form.prices())
    if not is_valid:
        return _page(request, event, form, site, status=400)
    return redirect("admin:events_publish", event.pk)


def _has_seen(request: HttpRequest, tiers: Sequence[Tier]) -> bool:
    """Return whether the fields of the form are those of these tiers; otherwise a price would go to another one."""
    if request.POST.getlist("tier") == [tier.key for tier in tiers]:
        return True
    messages.error(request, "The price categories have changed since you opened this page. Check the prices again.")
    return False


def _published(request: HttpRequest, event: Event) -> HttpResponse:
    messages.info(request, f"{event.name} is already published. Change its prices under “Prices and stock”.")
    return redirect("admin:event_dashboard", event.pk)


def _page(request: HttpRequest, event: Event, form: PricesForm, site: AdminSite, *, status: int = 200) -> HttpResponse:
    context = {**site.each_context(request), "title": f"Prices of {event.name}", "event": event, "form": form}
    return TemplateResponse(request, "admin/events/prices.html", context, status=status)
