"""The admin site: Django's admin under our name. Its index shows the last audit and the number of open differences with
payment providers."""

from typing import Any

from django.contrib.admin import AdminSite
from django.contrib.admin.apps import AdminConfig
from django.http import HttpRequest


class StaffSite(AdminSite):
    site_header = "Fairgate staff"
    site_title = "Fairgate staff"
    index_title = "Overview"

    def admin_view(self, view: Any, cacheable: bool = False) -> Any:
        # Imported here, because this module is imported before the apps' models are loaded.
        from ticketing import admin_errors

        return super().admin_view(admin_errors.refuse_invalid_input(view), cacheable)

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        # Imported here for the same reason.
        from apps.kernel.checks import auditor
        from apps.orders import facade as orders

        context: dict[str, Any] = {"audit": auditor.get_status()}
        if request.user.has_perm("orders.view_paymentdifference"):
            context["waiting"] = orders.count_open_differences()
        return super().index(request, {**(extra_context or {}), **context})


class StaffConfig(AdminConfig):
    default_site = "ticketing.admin_site.StaffSite"
