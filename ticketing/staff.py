"""The staff's site: Django's admin under our name, with the auditor's latest word on its first page."""

from typing import Any

from django.contrib.admin import AdminSite
from django.contrib.admin.apps import AdminConfig
from django.http import HttpRequest


class StaffSite(AdminSite):
    site_header = "Fairgate staff"
    site_title = "Fairgate staff"
    index_title = "The house"

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        # This module is read while the apps are still loading; their models exist later.
        from ticketing.kernel import audit

        return super().index(request, {**(extra_context or {}), "audit": audit.standing()})


class StaffConfig(AdminConfig):
    default_site = "ticketing.staff.StaffSite"
