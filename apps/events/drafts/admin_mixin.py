"""The part of the event's admin that belongs to drafts: the page that publishes, and the button that leads to it."""

from functools import partial
from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import path

from apps.events.drafts import publish_page
from apps.events.models import Event

CHECK_BUTTON = "_check"


class DraftAdminMixin(admin.ModelAdmin):
    """Adds the checklist of a draft to the admin of events."""

    def get_urls(self) -> list[Any]:
        publish = self.admin_site.admin_view(partial(publish_page.publish_page, site=self.admin_site))
        return [path("<int:event_id>/publish/", publish, name="events_publish"), *super().get_urls()]

    def response_change(self, request: HttpRequest, obj: Event) -> HttpResponse:
        if CHECK_BUTTON in request.POST:
            return redirect("admin:events_publish", obj.pk)
        return super().response_change(request, obj)
