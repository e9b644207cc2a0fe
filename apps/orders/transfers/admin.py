"""Admin of transfers: an event's policy, and the list of transfers."""

from django.contrib import admin
from django.http import HttpRequest

from apps.events.facade import OrganizerScopedAdmin
from apps.kernel.admin_lists import ReadOnlyAdmin
from apps.orders.models import TicketTransfer, TransferPolicy


@admin.register(TransferPolicy)
class TransferPolicyAdmin(OrganizerScopedAdmin):
    list_display = ["event", "until_hours", "per_ticket_max", "per_recipient_max"]
    list_select_related = ["event"]
    autocomplete_fields = ["event"]

    def get_readonly_fields(self, request: HttpRequest, obj: TransferPolicy | None = None) -> list[str]:
        return [] if obj is None else ["event"]


@admin.register(TicketTransfer)
class TicketTransferAdmin(OrganizerScopedAdmin, ReadOnlyAdmin):
    organizer_path = "ticket__order__event__organizer"
    list_display = ["ticket", "sequence", "email", "offered_at", "expires_at", "accepted_at", "ended_at"]
    list_select_related = ["ticket"]
    search_fields = ["=email", "=ticket__order__number"]
    search_help_text = "A complete email address or order number."
