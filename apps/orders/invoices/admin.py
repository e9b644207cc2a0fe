"""Admin of invoices and credit notes: read only."""

from typing import Any

from django.contrib import admin
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import path, reverse
from django.utils.html import format_html

from apps.events.facade import OrganizerScopedAdmin
from apps.kernel.admin_lists import ReadOnlyAdmin
from apps.kernel.formatting import format_money
from apps.orders.invoices.invoice_pdf import render_invoice
from apps.orders.models import Invoice


@admin.register(Invoice)
class InvoiceAdmin(OrganizerScopedAdmin, ReadOnlyAdmin):
    organizer_path = "order__event__organizer"
    list_display = ["number", "kind", "order", "total", "issued_at", "pdf"]
    list_filter = ["kind", "year", "series"]
    search_fields = ["=number", "=order__number", "=order__email"]
    search_help_text = "A complete invoice number, order number or email address."
    date_hierarchy = "issued_at"
    list_select_related = ["order"]

    @admin.display(ordering="total_minor")
    def total(self, invoice: Invoice) -> str:
        return format_money(invoice.total_minor, invoice.currency)

    @admin.display(description="PDF")
    def pdf(self, invoice: Invoice) -> Any:
        return format_html('<a href="{}">Open</a>', reverse("admin:orders_invoice_pdf", args=[invoice.pk]))

    def get_urls(self) -> list[Any]:
        own = path("<int:invoice_id>/pdf", self.admin_site.admin_view(self.show_pdf), name="orders_invoice_pdf")
        return [own, *super().get_urls()]

    def show_pdf(self, request: HttpRequest, invoice_id: int) -> HttpResponse:
        invoice = self.get_object(request, str(invoice_id))
        if invoice is None or not self.has_view_permission(request, invoice):
            raise Http404
        return HttpResponse(render_invoice(invoice), content_type="application/pdf")
