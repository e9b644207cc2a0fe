"""The staff's site: Django's admin under our name, with the auditor's latest word on its first page, and how many
differences with payment providers wait for a person."""

from typing import Any

from django.contrib.admin import AdminSite
from django.contrib.admin.apps import AdminConfig
from django.http import HttpRequest


class StaffSite(AdminSite):
    site_header = "Fairgate staff"
    site_title = "Fairgate staff"
    index_title = "The house"

    def admin_view(self, view: Any, cacheable: bool = False) -> Any:
        # Like what index needs, its imports exist later than this module.
        from ticketing import admin_errors

        return super().admin_view(admin_errors.refuse_invalid_input(view), cacheable)

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        # This module is read while the apps are still loading; their models exist later.
        from apps.kernel.checks import auditor
        from apps.orders import facade as orders

        told: dict[str, Any] = {"audit": auditor.get_status()}
        if request.user.has_perm("orders.view_paymentdifference"):
            told["waiting"] = orders.count_open_differences()
        return super().index(request, {**(extra_context or {}), **told})


class StaffConfig(AdminConfig):
    default_site = "ticketing.admin_site.StaffSite"
