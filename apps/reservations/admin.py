"""The admin of the inventory, reservations and their ledger."""

from functools import partial

from django.contrib import admin, messages
from django.db.models import F
from django.urls import path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.accounts import facade as accounts
from apps.events import facade as events
from apps.events.facade import EventValuesMixin, OrganizerScopedAdmin
from apps.kernel import admin_actions
from apps.kernel.admin_lists import (
    ReadOnlyAdmin,
    ReadOnlyInline,
    ReasonForm,
    confirm_action,
    format_count,
)
from apps.kernel.formatting import format_money
from apps.kernel.http import problems
from apps.reservations import facade
from apps.reservations.access_codes import admin as _access_code_admin  # noqa: F401 - Registers its own.
from apps.reservations.models import (
    AvailabilityFrame,
    BlockedFor,
    CleanupLog,
    GeneralAdmissionInventory,
    InventoryChange,
    PurchaseCap,
    Reservation,
    ReservationLine,
    ReservationTransition,
    SeatInventory,
)
from apps.reservations.staff import stock, stock_page
from apps.reservations.staff.refusals import recording_refusals
from apps.reservations.staff.seat_history_page import SeatHistoryMixin
from apps.reservations.staff.selection import Selection
from apps.reservations.staff.stock_summary import read_section_stock

SOLD = Reservation.Status.CONFIRMED
NOT_RELEASED = (Reservation.Status.PAYING, SOLD)


class LineInline(EventValuesMixin, ReadOnlyInline):
    model = ReservationLine
    event_path = "reservation__event"
    fields = ["section", "seat", "quantity", "category", "price_minor", "live", "returned_at"]

    def get_queryset(self, request):
        return super().get_queryset(request).select_related("section", "seat", "category")


class TransitionInline(ReadOnlyInline):
    model = ReservationTransition
    fields = ["at", "from_status", "to_status", "who", "why"]


@admin.register(Reservation)
class ReservationAdmin(OrganizerScopedAdmin, ReadOnlyAdmin):
    list_display = ["id", "event", "status", "buyer", "seat_count", "total", "expires_at", "pay_deadline", "created_at"]
    list_filter = ["status", "event"]
    list_select_related = ["event", "access_code"]
    search_fields = ["=id", "=buyer", "=email", "=entry__id"]
    search_help_text = "The id of a reservation or queue entry, account:ID, visitor:ID, or an exact email address."
    ordering = ["-created_at"]
    inlines = [LineInline, TransitionInline]
    actions = ["release", "cancel"]
    action_permissions = {"end": "reservations.change_reservation"}

    @admin.display(description="total")
    def total(self, reservation: Reservation) -> str:
        return format_money(reservation.total_minor, reservation.currency)

    def has_end_permission(self, request):
        return request.user.has_perm("reservations.change_reservation")

    @admin.action(description="Release the selected reservations (not yet paying)", permissions=["end"])
    def release(self, request, queryset):
        asked = confirm_action(
            self, request, queryset, title="Release these reservations?", button="Yes, release them",
            effect=lambda row: _describe_end(row, "stays: it is paying or paid." if row.status in NOT_RELEASED else ""),
        )  # fmt: skip
        if asked is None:
            self._end_each(request, queryset, facade.release)
        return asked

    @admin.action(
        description="Cancel the selected reservations (also paying ones; payments are refunded)", permissions=["end"]
    )
    @accounts.sensitive_action
    def cancel(self, request, queryset):
        def cancel(pk, who):
            facade.cancel_unpaid(pk, who, "canceled by staff")

        asked = confirm_action(
            self, request, queryset, title="Cancel these reservations?", button="Yes, cancel them",
            effect=lambda row: _describe_end(row, "stays: it is sold. Cancel its order." if row.status == SOLD else ""),
        )  # fmt: skip
        if asked is not None:
            return asked
        sold = queryset.filter(status=SOLD).count()
        if sold:
            messages.warning(request, f"Skipped {format_count(sold, 'sold reservation')}: cancel the order instead.")
        self._end_each(request, queryset.exclude(status=SOLD), cancel)
        return None

    def _end_each(self, request, queryset, end):
        ended = 0
        # Each in its own transaction: a refusal does not undo the others.
        for pk, status in list(queryset.values_list("pk", "status")):
            try:
                end(pk, f"staff:{request.user.pk}")
                ended += status in Reservation.LIVE
            except problems.Problem as problem:
                messages.warning(request, f"{pk}: {problem.detail}")
        if ended:
            messages.info(request, f"{format_count(ended, 'reservation')} ended; the tickets are available again.")
        else:
            messages.warning(request, "No reservation was ended.")


def _describe_end(reservation: Reservation, stays: str) -> tuple[str, str]:
    tickets = format_count(reservation.seat_count, "ticket")
    price = format_money(reservation.total_minor, reservation.currency)
    what = f"{reservation.event}, {tickets} for {price}, {reservation.pk}"
    if stays:
        return what, stays
    if reservation.status not in Reservation.LIVE:
        return what, f"stays: it is {reservation.get_status_display()}."
    if reservation.status == Reservation.Status.PAYING:
        return what, "its tickets become available, and a payment that arrives is refunded."
    return what, "its tickets become available."


@admin.register(ReservationTransition)
class ReservationTransitionAdmin(OrganizerScopedAdmin, ReadOnlyAdmin):
    organizer_path = "reservation__event__organizer"
    list_display = ["id", "at", "reservation_id", "from_status", "to_status", "who", "why"]
    list_filter = ["to_status"]
    search_fields = ["=reservation__id", "=who"]
    search_help_text = "A reservation's id, or the exact name of the actor."
    ordering = ["-id"]


def _stock_link(row: SeatInventory | GeneralAdmissionInventory) -> SafeString:
    return format_html('<a href="{}">{}</a>', reverse(stock_page.URL_NAME, args=[row.event_id]), row.event)


@admin.register(SeatInventory)
class SeatInventoryAdmin(OrganizerScopedAdmin, SeatHistoryMixin, ReadOnlyAdmin):
    row_names = ("seat", "seats")
    list_display = [
        "seat", "stock", "section", "category", "status", "blocked_for", "accessible", "reservation_id",
    ]  # fmt: skip
    list_filter = ["status", "blocked_for", "event", "accessible"]
    list_select_related = ["seat", "event", "section", "category"]
    search_fields = ["=seat__guid", "=reservation_id"]
    search_help_text = "The exact id of a seat or a reservation."
    ordering = ["seat_id"]
    sortable_by = []  # By the columns, hundreds of thousands of seats would be sorted.
    action_form = ReasonForm
    actions = ["block_for_house", "block_out_of_use", "put_back"]
    action_permissions = {"block": stock_page.MAY_CHANGE_SEATS}

    def get_urls(self):
        view = self.admin_site.admin_view(partial(stock_page.stock_view, site=self.admin_site))
        return [path("stock/<int:event_id>/", view, name="reservations_stock"), *super().get_urls()]

    def has_block_permission(self, request):
        return request.user.has_perm(stock_page.MAY_CHANGE_SEATS)

    @admin.display(description="stock of", ordering="event")
    def stock(self, row):
        return _stock_link(row)

    @admin.action(description="Block as house seats", permissions=["block"])
    def block_for_house(self, request, queryset):
        return self._block(request, queryset, BlockedFor.HOUSE)

    @admin.action(description="Block as out of use", permissions=["block"])
    def block_out_of_use(self, request, queryset):
        return self._block(request, queryset, BlockedFor.OUT_OF_USE)

    @admin.action(description="Put back on sale", permissions=["block"])
    def put_back(self, request, queryset):
        asked = confirm_action(
            self, request, queryset.select_related("seat", "event"), title="Put these seats back on sale?",
            button="Yes, sell them", carry=_reason_field(request),
            effect=lambda row: (
                f"{row.seat}, {row.event}",
                "is on sale again." if row.blocked_for else f"stays: it is {row.get_status_display()}.",
            ),
        )  # fmt: skip
        if asked is None:
            self._each_event(request, queryset, stock.unblock_seats, InventoryChange.Kind.UNBLOCKED, "back on sale")
        return asked

    def _block(self, request, queryset, reason):
        def effect(row):
            taken = row.status in (SeatInventory.Status.HELD, SeatInventory.Status.SOLD)
            then = f"stays: it is {row.get_status_display()}." if taken else f"is blocked ({reason.label})."
            return f"{row.seat}, {row.event}", then

        asked = confirm_action(
            self, request, queryset.select_related("seat", "event"), title="Take these seats off sale?",
            button="Yes, block them", effect=effect, carry=_reason_field(request),
        )  # fmt: skip
        if asked is None:
            # Seats that were held since the confirmation page are skipped, as that page announces.
            block = partial(stock.block_seats, reason=reason, only_free=True)
            self._each_event(request, queryset, block, InventoryChange.Kind.BLOCKED, f"blocked ({reason.label})")
        return asked

    def _each_event(self, request, queryset, act, kind, words):
        seats: dict[int, list[str]] = {}
        for event_id, guid in queryset.select_related(None).values_list("event_id", "seat__guid"):
            seats.setdefault(event_id, []).append(guid)
        for event_id, guids in seats.items():
            event = events.get_event_by_id(event_id)
            by = {"who": request.user.get_username(), "why": request.POST.get("why", "")}
            try:
                with recording_refusals(event_id, kind, f"seats={' '.join(guids)}", **by):
                    count = act(event, Selection(tuple(guids)), **by)
            except problems.Problem as problem:
                messages.warning(request, f"{event.name}: {admin_actions.describe_problem(problem)}")
                continue
            left = len(guids) - count
            unchanged = f", {format_count(left, 'seat')} unchanged" if left else ""
            messages.info(request, f"{event.name}: {format_count(count, 'seat')} {words}{unchanged}.")


def _reason_field(request):
    return {"why": request.POST.get("why", "")[:200]}


@admin.register(GeneralAdmissionInventory)
class GeneralAdmissionInventoryAdmin(OrganizerScopedAdmin, ReadOnlyAdmin):
    row_names = ("section", "sections")
    list_display = ["section", "stock", "capacity", "free", "taken", "house", "out_of_use"]
    list_filter = ["event"]
    list_select_related = ["section", "event"]
    change_form_template = "admin/reservations/general_admission.html"

    def get_queryset(self, request):
        return super().get_queryset(request).annotate(left=F("capacity") - F("blocked") - F("taken"))

    def change_view(self, request, object_id, form_url="", extra_context=None):
        context = {**(extra_context or {})}
        row = self.get_object(request, object_id)
        if row is not None and request.user.has_perm(stock_page.MAY_CHANGE_GENERAL_ADMISSION, row.event):
            rows = read_section_stock(row.event_id)
            context |= {
                "row": next(one for one in rows if one.section.id == row.pk),
                "event": events.get_event_by_id(row.event_id),
                "reasons": BlockedFor.choices,
            }
        return super().change_view(request, object_id, form_url, context)

    @admin.display(description="stock of", ordering="event")
    def stock(self, row):
        return _stock_link(row)

    @admin.display(description="free", ordering="left")
    def free(self, row) -> int:
        return row.left

    @admin.display(description="out of use")
    def out_of_use(self, row) -> int:
        return row.blocked - row.house


@admin.register(InventoryChange)
class InventoryChangeAdmin(OrganizerScopedAdmin, ReadOnlyAdmin):
    list_display = ["at", "event", "section", "seat", "kind", "quantity", "who", "why", "refusal"]
    list_filter = ["kind", ("refusal", admin.EmptyFieldListFilter), "event"]
    list_select_related = ["event", "section", "seat"]
    search_fields = ["=seat__guid", "=who"]
    search_help_text = "The exact id of a seat, or the exact name of the actor."
    ordering = ["-id"]


@admin.register(PurchaseCap)
class PurchaseCapAdmin(OrganizerScopedAdmin, ReadOnlyAdmin):
    list_display = ["buyer", "event"]
    list_filter = ["event"]
    list_select_related = ["event"]
    search_fields = ["=buyer"]
    search_help_text = "Searches for an exact account:ID, visitor:ID or email:ADDRESS."


@admin.register(CleanupLog)
class CleanupLogAdmin(OrganizerScopedAdmin, ReadOnlyAdmin):
    organizer_path = "section__event__organizer"
    list_display = [
        "swept_at", "section", "seats_released", "general_admission_released", "reservations_affected", "duration_ms",
        "swept_by",
    ]  # fmt: skip
    list_filter = ["swept_by"]
    list_select_related = ["section"]


@admin.register(AvailabilityFrame)
class AvailabilityFrameAdmin(OrganizerScopedAdmin, ReadOnlyAdmin):
    list_display = ["event", "epoch", "sequence", "published_at"]
    list_select_related = ["event"]
