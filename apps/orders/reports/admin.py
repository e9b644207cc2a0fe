"""Admin of published reports: a read-only list."""

from django.contrib import admin
from django.urls import reverse
from django.utils.html import format_html

from apps.events.facade import OrganizerScopedAdmin
from apps.kernel.admin_lists import ReadOnlyAdmin
from apps.orders.models import ReportVersion


@admin.register(ReportVersion)
class ReportVersionAdmin(OrganizerScopedAdmin, ReadOnlyAdmin):
    list_display = ["event", "version", "published_at", "published_by", "key_id", "page"]
    list_filter = ["event"]
    list_select_related = ["event"]
    fields = ["event", "version", "as_of", "published_at", "published_by", "key_id", "page", "document"]

    def get_queryset(self, request):
        return super().get_queryset(request).defer("pdf")

    @admin.display(description="page")
    def page(self, report):
        return format_html('<a href="{0}">{0}</a>', reverse("orders:report", args=[report.event.slug]))
