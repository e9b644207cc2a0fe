"""Inventory, reservations and their ledger, for staff."""

from django.contrib import admin, messages
from django.db.models import F

from apps.reservations import facade
from apps.reservations.history_desk import ShowsHistory
from apps.reservations.models import (
    AvailabilityFrame,
    CleanupLog,
    GeneralAdmissionInventory,
    InventoryChange,
    PurchaseCap,
    Reservation,
    ReservationLine,
    ReservationTransition,
    SeatInventory,
)
from ticketing.kernel import problems, transactions
from ticketing.kernel.staff_lists import ReadOnlyAdmin, ReadOnlyInline, ask_first, counted
from ticketing.kernel.templatetags.fairgate import money

SOLD = Reservation.Status.CONFIRMED
NOT_RELEASED = (Reservation.Status.PAYING, SOLD)


class LineInline(ReadOnlyInline):
    model = ReservationLine
    fields = ["section", "seat", "quantity", "category", "price_minor", "live"]

    def get_queryset(self, request):
        return super().get_queryset(request).select_related("section", "seat", "category")


class TransitionInline(ReadOnlyInline):
    model = ReservationTransition
    fields = ["at", "from_status", "to_status", "who", "why"]


@admin.register(Reservation)
class ReservationAdmin(ReadOnlyAdmin):
    list_display = ["id", "event", "status", "buyer", "seat_count", "total", "expires_at", "pay_deadline", "created_at"]
    list_filter = ["status", "event"]
    list_select_related = ["event"]
    search_fields = ["=id", "=buyer", "=email", "=entry__id"]
    search_help_text = "A reservation's or queue entry's id, account:ID or visitor:ID, or a whole e-mail address."
    ordering = ["-created_at"]
    inlines = [LineInline, TransitionInline]
    actions = ["release", "cancel"]

    @admin.display(description="total")
    def total(self, reservation: Reservation) -> str:
        return money(reservation.total_minor, reservation.currency)

    def has_end_permission(self, request):
        return request.user.has_perm("reservations.change_reservation")

    @admin.action(description="Release the selected reservations (not yet paying)", permissions=["end"])
    def release(self, request, queryset):
        asked = ask_first(
            self, request, queryset, title="Release these reservations?", button="Yes, release them",
            effect=lambda row: _what(row, "stays: it is paying or paid." if row.status in NOT_RELEASED else ""),
        )  # fmt: skip
        if asked is None:
            self._end_each(request, queryset, facade.release)
        return asked

    @admin.action(description="Cancel the selected reservations (paying too: the money goes back)", permissions=["end"])
    def cancel(self, request, queryset):
        def cancel(pk, who):
            with transactions.write():
                facade.cancel(pk, who=who, why="canceled by staff")

        asked = ask_first(
            self, request, queryset, title="Cancel these reservations?", button="Yes, cancel them",
            effect=lambda row: _what(row, "stays: it is sold. Cancel its order." if row.status == SOLD else ""),
        )  # fmt: skip
        if asked is not None:
            return asked
        sold = queryset.filter(status=SOLD).count()
        if sold:
            messages.warning(request, f"{counted(sold, 'reservation')} sold: cancel the order instead.")
        self._end_each(request, queryset.exclude(status=SOLD), cancel)
        return None

    def _end_each(self, request, queryset, end):
        ended = 0
        # One by one: each is a transaction of its own, and one refusal leaves the others ended.
        for pk, status in list(queryset.values_list("pk", "status")):
            try:
                end(pk, f"staff:{request.user.pk}")
                ended += status in Reservation.LIVE
            except problems.Problem as problem:
                messages.warning(request, f"{pk}: {problem.detail}")
        if ended:
            messages.info(request, f"{counted(ended, 'reservation')} ended: the places are free again.")
        else:
            messages.warning(request, "There was nothing to give back.")


def _what(reservation: Reservation, stays: str) -> tuple[str, str]:
    places = counted(reservation.seat_count, "place")
    what = f"{reservation.event}, {places} for {money(reservation.total_minor, reservation.currency)}, {reservation.pk}"
    if stays:
        return what, stays
    if reservation.status not in Reservation.LIVE:
        return what, f"{reservation.get_status_display()} already. Nothing happens."
    if reservation.status == Reservation.Status.PAYING:
        return what, "its places are free again, and a payment that arrives goes back."
    return what, "its places are free again."


@admin.register(ReservationTransition)
class ReservationTransitionAdmin(ReadOnlyAdmin):
    list_display = ["id", "at", "reservation_id", "from_status", "to_status", "who", "why"]
    list_filter = ["to_status"]
    search_fields = ["=reservation__id", "=who"]
    search_help_text = "A reservation's id, or who did it."
    ordering = ["-id"]


@admin.register(SeatInventory)
class SeatInventoryAdmin(ShowsHistory, ReadOnlyAdmin):
    list_display = ["seat", "event", "section", "category", "status", "accessible", "reservation_id"]
    list_filter = ["status", "event", "accessible"]
    list_select_related = ["seat", "event", "section", "category"]
    search_fields = ["=seat__guid", "=reservation_id"]
    search_help_text = "A seat's whole id, or a reservation's."
    ordering = ["seat_id"]


@admin.register(GeneralAdmissionInventory)
class GeneralAdmissionInventoryAdmin(ReadOnlyAdmin):
    list_display = ["section", "event", "capacity", "blocked", "taken", "free"]
    list_filter = ["event"]
    list_select_related = ["section", "event"]

    def get_queryset(self, request):
        return super().get_queryset(request).annotate(left=F("capacity") - F("blocked") - F("taken"))

    @admin.display(description="free", ordering="left")
    def free(self, row) -> int:
        return row.left


@admin.register(InventoryChange)
class InventoryChangeAdmin(ReadOnlyAdmin):
    list_display = ["at", "event", "section", "seat", "kind", "quantity", "who", "why"]
    list_filter = ["kind", "event"]
    list_select_related = ["event", "section", "seat"]
    search_fields = ["=seat__guid", "=who"]
    search_help_text = "A seat's whole id, or who did it."
    ordering = ["-id"]


@admin.register(PurchaseCap)
class PurchaseCapAdmin(ReadOnlyAdmin):
    list_display = ["buyer", "event"]
    list_filter = ["event"]
    list_select_related = ["event"]
    search_fields = ["=buyer"]
    search_help_text = "account:ID, visitor:ID or email:ADDRESS, whole."


@admin.register(CleanupLog)
class CleanupLogAdmin(ReadOnlyAdmin):
    list_display = [
        "swept_at", "section", "seats_released", "general_admission_released", "reservations_affected", "duration_ms",
        "swept_by",
    ]  # fmt: skip
    list_filter = ["swept_by"]
    list_select_related = ["section"]


@admin.register(AvailabilityFrame)
class AvailabilityFrameAdmin(ReadOnlyAdmin):
    list_display = ["event", "epoch", "sequence", "published_at"]
    list_select_related = ["event"]
