"""The pages of one event in the admin: its publication, and its changes after it."""

from functools import partial
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import path

from apps.events.drafts import prices_page, publish_page
from apps.events.drafts.large_plans import alone_if_large
from apps.events.drafts.new_event_page import new_event_page
from apps.events.drafts.tiers import missing_tiers
from apps.events.interest.demand_page import demand_page
from apps.events.models import Category, Event
from apps.events.revisions import page

CHECK_BUTTON = "_check"


class EventPagesMixin(admin.ModelAdmin):
    """Adds the pages that publish a draft, and that change a published event, to the admin of events."""

    def get_urls(self) -> list[Any]:
        publish = self.admin_site.admin_view(partial(publish_page.publish_page, site=self.admin_site))
        prices = self.admin_site.admin_view(partial(prices_page.prices_page, site=self.admin_site))
        changes = self.admin_site.admin_view(partial(page.changes_page, site=self.admin_site))
        demand = self.admin_site.admin_view(partial(demand_page, site=self.admin_site))
        return [
            path("<int:event_id>/demand/", demand, name="events_demand"),
            path("<int:event_id>/prices/", prices, name="events_prices"),
            path("<int:event_id>/publish/", publish, name="events_publish"),
            path("<int:event_id>/changes/", changes, name="events_changes"),
            *super().get_urls(),
        ]

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        return new_event_page(request, self.admin_site)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        return alone_if_large(super().change_view)(request, object_id, form_url, extra_context)

    def get_formset_kwargs(self, request: HttpRequest, obj: Event, inline: Any, prefix: str) -> dict[str, Any]:
        """Offer the price categories of the plan that have no price yet. A row without a price is not saved."""
        found = super().get_formset_kwargs(request, obj, inline, prefix)
        if inline.model is Category and obj is not None and obj.pk:
            found["initial"] = missing_tiers(obj)
        return found

    def response_change(self, request: HttpRequest, obj: Event) -> HttpResponse:
        if CHECK_BUTTON in request.POST:
            return redirect("admin:events_publish", obj.pk)
        return super().response_change(request, obj)
