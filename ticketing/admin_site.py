"""The admin site: Django's admin with our navigation. Its home page shows the last audit and the number of open
differences with payment providers."""

from functools import partial, wraps
from typing import Any

from django.contrib.admin import AdminSite, ShowFacets
from django.contrib.admin.apps import AdminConfig
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.views.decorators.http import require_http_methods

from ticketing.admin_navigation import Shown, groups_for

_PERSONAL_DATA = (
    "orders_", "queue_queueentry_", "reservations_reservation_", "reservations_purchasecap_", "accounts_",
)  # fmt: skip
"""Beginnings of the names of pages that show personal data."""


class StaffSite(AdminSite):
    site_header = "Fairgate staff"
    site_title = "Fairgate staff"
    index_title = "Dashboard"

    def register(self, *args: Any, **options: Any) -> None:
        """Register pages whose lists count no facets: each choice of each filter would count the rows of the list."""
        super().register(*args, **options)
        for model_admin in self._registry.values():
            model_admin.show_facets = ShowFacets.NEVER  # type: ignore[misc]

    def get_urls(self) -> list[Any]:
        # Imported here for the reason below.
        from apps.orders import facade as orders

        pages = orders.dashboards()
        dashboard = self.admin_view(partial(pages.dashboard_view, site=self))
        return [
            path("groups/<slug:slug>/", self.admin_view(self.group), name="group"),
            path("events/event/<int:event_id>/dashboard/", dashboard, name="event_dashboard"),
            # "orders_": a page with personal data.
            path(
                "events/event/<int:event_id>/<slug:kind>.csv", self.admin_view(pages.export_view), name="orders_export"
            ),
            *super().get_urls(),
        ]

    def navigation(self, request: HttpRequest) -> list[Shown]:
        """Return the groups of the navigation that the user sees."""
        apps = self._build_app_dict(request).values()
        pages = {page["model"]._meta.label_lower: page for app in apps for page in app["models"]}
        return groups_for(pages, request.path)

    def each_context(self, request: HttpRequest) -> dict[str, Any]:
        context = super().each_context(request)
        groups = self.navigation(request) if context["has_permission"] else []
        context["navigation"] = groups
        context["group"] = next((group for group in groups if group.is_current), None)
        return context

    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> list[Any]:
        """Return nothing: the navigation has groups instead of Django's list of apps."""
        return []

    def app_index(self, request: HttpRequest, app_label: str, extra_context: dict[str, Any] | None = None) -> Any:
        """Redirect Django's page of an app to the home page, whose navigation has the same pages in groups."""
        if not self._build_app_dict(request, app_label):
            raise Http404
        return redirect("admin:index")

    def group(self, request: HttpRequest, slug: str) -> HttpResponse:
        """Show the pages of one group of the navigation."""
        context = self.each_context(request)
        if context["group"] is None:
            raise Http404
        return TemplateResponse(request, "admin/group.html", {**context, "title": context["group"].name})

    def login(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Redirect to the site's own log-in page, with its limits and second factors."""
        # Imported here, because this module is imported before the apps' models are loaded.
        from django.contrib.auth.views import redirect_to_login

        if request.user.is_authenticated and not self.has_permission(request):
            raise PermissionDenied
        return redirect_to_login(request.GET.get("next") or reverse("admin:index"))

    def password_change(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        return redirect("account_change_password")

    def admin_view(self, view: Any, cacheable: bool = False) -> Any:
        # Imported here for the same reason.
        from ticketing import admin_errors

        checked = admin_errors.refuse_invalid_input(view)
        # Django's views of lists and rows show them for every method.
        return super().admin_view(require_http_methods(["GET", "HEAD", "POST"])(_record_reads(checked)), cacheable)

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        # Imported here for the same reason.
        from apps.events import facade as events
        from apps.kernel.checks import auditor
        from apps.orders import facade as orders

        # Members of organizers see neither the audit of the whole site nor the differences of other organizers.
        is_confined = events.is_member(request.user) and not request.user.has_perm("kernel.view_auditrun")
        context: dict[str, Any] = {} if is_confined else {"audit": auditor.get_status()}
        seen = events.permitted_organizers(request.user, "orders.view_paymentdifference")
        if seen is None or seen:
            context["waiting"] = orders.count_open_differences(seen)
        context |= orders.dashboards().home_context(request.user)
        context["may_create"] = request.user.has_perm("events.add_event")
        context["may_find_orders"] = request.user.has_perm("orders.view_order")
        return super().index(request, {**(extra_context or {}), **context})


def _record_reads(view: Any) -> Any:
    """Wrap a page so that the security log has who saw whose personal data: lists and pages of one row."""

    @wraps(view)
    def recorded(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        response = view(request, *args, **kwargs)
        match = request.resolver_match
        name = match.url_name or "" if match is not None else ""
        shows = name.startswith(_PERSONAL_DATA) and not name.endswith("_add")
        # A form that was refused shows its page again.
        if shows and response.status_code == 200:
            # Imported here, because this module is imported before the apps' models are loaded.
            from apps.accounts import facade as accounts

            accounts.record_personal_data_read(request, request.get_full_path())
        return response

    return recorded


class StaffConfig(AdminConfig):
    default_site = "ticketing.admin_site.StaffSite"
