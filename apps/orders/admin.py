"""Admin of orders, payments and tickets: read-only lists, with actions that call the services."""

import uuid
from collections.abc import Callable, Iterable
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar

from django import forms
from django.contrib import admin, messages
from django.db import models
from django.db.models import F, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import path, reverse
from django.utils.html import format_html

from apps.accounts import facade as accounts
from apps.events import facade as events
from apps.events.facade import EventValuesMixin, OrganizerScopedAdmin
from apps.kernel.admin_lists import (
    NonAtomicFormMixin,
    ReadOnlyAdmin,
    ReadOnlyInline,
    ReadOnlyMixin,
    ReasonForm,
    confirm_action,
    format_count,
    masked,
)
from apps.kernel.db import transactions
from apps.kernel.formatting import format_money
from apps.kernel.http import problems
from apps.orders import mail, organizer_mails, topics
from apps.orders.cancellation import event_cancellation, order_cancellation
from apps.orders.checkin import admin as _checkin_admin  # noqa: F401 - Registers models.
from apps.orders.checkin.check_in import Outcome, Scan, undo_last_check_in
from apps.orders.feeds import admin as _feeds_admin  # noqa: F401 - Registers models.
from apps.orders.invoices import admin as _invoice_admin  # noqa: F401 - Registers models.
from apps.orders.models import (
    CancellationFailure,
    ComparedDay,
    EventCancellation,
    Order,
    OrderLine,
    Payment,
    PaymentDifference,
    ProviderMessage,
    Refund,
    ReturnPolicy,
    Ticket,
)
from apps.orders.promo_codes import admin as _promo_code_admin  # noqa: F401 - Registers models.
from apps.orders.provider_sync import discrepancies
from apps.orders.reports import admin as _report_admin  # noqa: F401 - Registers models.
from apps.orders.staff import order_page, refund_page
from apps.orders.tickets import reissue as ticket_reissue
from apps.orders.transfers import admin as _transfer_admin  # noqa: F401 - Registers models.
from apps.orders.webhooks import admin as _webhook_admin  # noqa: F401 - Registers models.
from apps.reservations import facade as reservations

Row = TypeVar("Row", bound=models.Model)
_NUMBER = attrgetter("number")


def _money_column(field: str, label: str) -> Callable[[admin.ModelAdmin, Any], str]:
    @admin.display(description=label, ordering=field)
    def column(self: admin.ModelAdmin, row: Any) -> str:
        return format_money(getattr(row, field), row.currency)

    return column


class _PaymentInline(EventValuesMixin, ReadOnlyInline):
    event_path = "order__event"
    model = Payment
    show_change_link = True
    fields = ["attempt", "method", "status", "amount_minor", "captured_minor", "refunded_minor", "occurred_at"]


class _RefundInline(EventValuesMixin, ReadOnlyInline):
    event_path = "order__event"
    model = Refund
    show_change_link = True
    fields = ["amount_minor", "status", "failure", "reason", "requested_by", "requested_at", "settled_at"]


class _LineInline(EventValuesMixin, ReadOnlyInline):
    event_path = "order__event"
    model = OrderLine
    fields = [
        "description",
        "category",
        "price_minor",
        "discount_minor",
        "fee_minor",
        "tax_minor",
        "total_minor",
        "canceled_at",
    ]


class _TicketInline(EventValuesMixin, ReadOnlyInline):
    event_path = "order__event"
    model = Ticket
    show_change_link = True
    fields = ["label", "category", "holder", "checked_in_at", "voided_at"]
    # Valid tickets first: each new code leaves a void one.
    ordering = [F("voided_at").desc(nulls_first=True), "pk"]


REISSUED_MAX = 500
"""Tickets of one action. Each takes three milliseconds of a thread of the site."""


def _apply(request: HttpRequest, rows: Iterable[Row], name: Callable[[Row], str], act: Callable[[Row], bool]) -> int:
    """Call `act` on each row; it commits by itself. Show a refusal as an error with the row's name. Return how many
    rows changed."""
    count = 0
    for row in rows:
        try:
            count += act(row)
        except problems.Problem as problem:
            messages.error(request, f"{name(row)}: {problem.detail}")
    return count


@admin.register(Order)
class OrderAdmin(OrganizerScopedAdmin, ReadOnlyAdmin):
    list_display = ["number", "event", "status", "reason", "email", "total", "placed_at", "confirmed_at"]
    list_filter = ["status", "reason", "event", "placed_at"]
    search_fields = ["=number", "=email", "=reservation_id", "name"]
    search_help_text = "A complete order number, email address or reservation id, or part of the buyer's name."
    date_hierarchy = "placed_at"
    list_select_related = ["event"]
    inlines = [_LineInline, _PaymentInline, _RefundInline, _TicketInline]
    fieldsets = [
        (None, {"fields": ["number", "event", "status", "reason", "total", "name", "email", "account"]}),
        (
            "Details",
            {
                "fields": [
                    "id", "reservation", "entry", "buyer", "pay_deadline", "placed_at", "confirmed_at", "ended_at",
                    "tickets_sent_at", "terms_version", "terms_accepted_at", "is_handed_over", "handed_over_at",
                ],
                "classes": ["collapse"],
            },
        ),
    ]  # fmt: skip
    readonly_fields = ["total"]
    actions = ["resend_tickets", "reissue", "refund"]
    action_permissions = {"act": "orders.change_order"}
    total = _money_column("total_minor", "total")

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(partial(refund_page.refund_page_view, site=self.admin_site))
        act = self.admin_site.admin_view(order_page.order_action_view)
        return [
            path("<uuid:order_id>/money/", view, name="orders_refund_desk"),
            path("<uuid:order_id>/act/", act, name="orders_order_act"),
            *super().get_urls(),
        ]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        found = self.get_object(request, object_id)
        can_act = found is not None and request.user.has_perm(order_page.PERMISSION, found.event)
        context = {"can_act": can_act} | (order_page.page_context(found) if found is not None and can_act else {})
        return super().change_view(request, object_id, form_url, {**(extra_context or {}), **context})

    def has_act_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("orders.change_order")

    @admin.action(description="Resend tickets", permissions=["act"])
    @accounts.sensitive_action
    def resend_tickets(self, request: HttpRequest, queryset: QuerySet[Order]) -> None:
        def resend(order: Order) -> bool:
            mail.resend_tickets(order.pk, f"staff:{request.user.pk}")
            return True

        count = _apply(request, queryset.filter(status__in=Order.STANDING), _NUMBER, resend)
        if count:
            wait = organizer_mails.describe_wait(topics.SEND_TICKETS_AGAIN, queryset)
            messages.success(request, f"Resending the tickets of {format_count(count, 'order')}.{wait}")
        else:
            messages.warning(request, "None of the selected orders has tickets to send.")

    @admin.action(description="Replace the codes of all tickets", permissions=["act"])
    @accounts.sensitive_action
    def reissue(self, request: HttpRequest, queryset: QuerySet[Order]) -> HttpResponse | None:
        tickets = Ticket.objects.filter(order__in=queryset, voided_at=None)
        if tickets[: REISSUED_MAX + 1].count() > REISSUED_MAX:
            problem = f"Nothing was done. Choose orders with at most {REISSUED_MAX} valid tickets together."
            messages.error(request, problem)
            return None
        confirmation = confirm_action(
            self,
            request,
            queryset,
            title="Replace the codes of all tickets of these orders?",
            button="Yes, reissue",
            effect=lambda order: (
                f"{order.number}, {order.event}, {order.email}",
                "its ticket codes become invalid, and the new ones are emailed. Checked-in tickets keep their codes.",
            ),
        )
        if confirmation is not None:
            return confirmation
        who = f"staff:{request.user.pk}"
        count = _apply(request, queryset, _NUMBER, lambda order: bool(ticket_reissue.reissue_order(order.pk, who)))
        if count:
            wait = organizer_mails.describe_wait(topics.SEND_TICKETS_AGAIN, queryset)
            done = f"Replaced the codes of {format_count(count, 'order')}. The tickets are being emailed.{wait}"
            messages.success(request, done)
        return None

    @admin.action(
        description="Cancel and refund: tickets are no longer valid, and the seats go back on sale", permissions=["act"]
    )
    @accounts.sensitive_action
    def refund(self, request: HttpRequest, queryset: QuerySet[Order]) -> HttpResponse | None:
        confirmation = confirm_action(
            self,
            request,
            queryset,
            title="Cancel and refund these orders?",
            button="Yes, cancel and refund",
            effect=_describe_refund,
        )
        if confirmation is not None:
            return confirmation
        who = f"staff:{request.user.pk}"
        count = _apply(request, queryset, _NUMBER, lambda order: order_cancellation.refund_order(order.pk, who))
        if count:
            wait = organizer_mails.describe_wait(topics.SEND_REFUND_NOTICE, queryset)
            messages.success(request, f"Canceled or refunded {format_count(count, 'order')}.{wait}")
        else:
            messages.warning(request, "None of the selected orders could be canceled or refunded.")
        return None


def _describe_refund(order: Order) -> tuple[str, str]:
    summary = f"{order.number}, {order.event}, {order.email}"
    if order.status in Order.OPEN:
        return summary, "not paid yet. It will be canceled, and its seats go back on sale."
    if order.status not in Order.STANDING:
        return summary, f"already {order.get_status_display()}. Nothing changes."
    back_minor = sum(payment.captured_minor - payment.refunded_minor for payment in order.payments.all())
    valid = order.tickets.filter(voided_at=None)
    tickets = format_count(valid.count(), "ticket")
    inside = valid.filter(checked_in_at__isnull=False).count()
    warning = f"Warning: {inside} of its tickets are checked in. " if inside else ""
    refunded = f"{format_money(back_minor, order.currency)} will be refunded" if back_minor else "no refund"
    return summary, f"{warning}{refunded}, {tickets} will no longer be valid, and the seats go back on sale."


@admin.register(ReturnPolicy)
class ReturnPolicyAdmin(OrganizerScopedAdmin):
    list_display = ["event", "until_hours", "keeps_fees"]
    list_select_related = ["event"]
    autocomplete_fields = ["event"]

    def get_readonly_fields(self, request: HttpRequest, obj: ReturnPolicy | None = None) -> list[str]:
        return [] if obj is None else ["event"]

    def save_model(self, request: HttpRequest, obj: ReturnPolicy, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        reservations.purge_page(obj.event_id)

    def delete_model(self, request: HttpRequest, obj: ReturnPolicy) -> None:
        reservations.purge_page(obj.event_id)
        super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[ReturnPolicy]) -> None:
        with transactions.write():
            for policy in queryset:
                reservations.purge_page(policy.event_id)
            super().delete_queryset(request, queryset)


class _ReturnPolicyForm(forms.ModelForm):
    """Without hours there is no policy, whatever the other fields have."""

    def has_changed(self) -> bool:
        # The event's key, which the formset sets, is the policy's own key, too.
        is_empty = self.instance._state.adding and self["until_hours"].value() in (None, "")
        return not is_empty and super().has_changed()


class _ReturnPolicyFormSet(forms.BaseInlineFormSet):
    @classmethod
    def get_default_prefix(cls) -> str:
        return "returns"  # Django's is empty, because events have no name for this relation.

    def save(self, commit: bool = True) -> Any:
        saved = super().save(commit)
        if self.has_changed():
            reservations.purge_page(self.instance.pk)
        return saved


class _ReturnPolicyInline(admin.StackedInline):
    """Buyers may return tickets if this is filled in."""

    model = ReturnPolicy
    form = _ReturnPolicyForm
    formset = _ReturnPolicyFormSet
    classes = ("collapse",)
    verbose_name = "Return policy (empty: tickets cannot be returned)"
    verbose_name_plural = verbose_name


events.add_event_inline(_ReturnPolicyInline)


class _CancellationForm(forms.ModelForm):
    confirm = forms.CharField(
        label="Type the name of the event", help_text="To confirm. This cannot be undone.", max_length=200
    )

    class Meta:
        model = EventCancellation
        fields = ["event", "words"]

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = super().clean() or {}
        event = data.get("event")
        if event is not None and event.status != "published":
            self.add_error("event", "Only a published event can be canceled. A canceled one is already in this list.")
        elif event is not None and data.get("confirm", "").strip() not in (event.name.strip(), event.slug):
            self.add_error("confirm", "This is not the name of the event.")
        return data


class _FailureInline(ReadOnlyInline):
    model = CancellationFailure
    fields = ["number", "error", "at"]
    readonly_fields = ["number", "error", "at"]
    ordering = ["-at", "-pk"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[CancellationFailure]:
        return super().get_queryset(request).select_related("order")

    @admin.display(description="order")
    def number(self, failure: CancellationFailure) -> Any:
        order = failure.order
        return format_html('<a href="{}">{}</a>', reverse("admin:orders_order_change", args=[order.pk]), order.number)


@admin.register(EventCancellation)
class EventCancellationAdmin(
    OrganizerScopedAdmin, accounts.SensitiveAdminMixin, NonAtomicFormMixin, ReadOnlyMixin, admin.ModelAdmin
):
    """The progress of events' cancellations. Adding a row starts a cancellation."""

    list_display = ["event", "progress", "orders_failed", "money", "started_by", "started_at", "finished_at"]
    list_select_related = ["event"]
    actions = ["resume"]
    action_permissions = {"resume": "orders.add_eventcancellation"}

    def has_add_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("orders.add_eventcancellation")

    def has_resume_permission(self, request: HttpRequest) -> bool:
        return self.has_add_permission(request)

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        return super().get_form(request, obj, change, **(kwargs if change else kwargs | {"form": _CancellationForm}))

    def get_fields(self, request: HttpRequest, obj: EventCancellation | None = None) -> Any:
        if obj is None:
            return ["event", "words", "confirm"]
        return [
            "event", "progress", "orders_left", "orders_failed", "reservations_done", "money", "words", "started_by",
            "started_at", "finished_at",
        ]  # fmt: skip

    def get_readonly_fields(self, request: HttpRequest, obj: EventCancellation | None = None) -> list[str]:
        return [] if obj is None else self.get_fields(request, obj)

    def get_inlines(self, request: HttpRequest, obj: EventCancellation | None) -> list[Any]:
        return [] if obj is None else [_FailureInline]

    def formfield_for_foreignkey(self, db_field: models.ForeignKey, request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name == "event":
            kwargs["queryset"] = db_field.remote_field.model._default_manager.filter(status="published")
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> Any:
        """Show what the cancellation of the event in the link means for those who hold or bought."""
        given = request.GET.get("event", "")
        event_id = int(given) if given.isascii() and given.isdigit() and len(given) <= 18 else 0
        organizer_ids = events.permitted_organizers(request.user, "orders.add_eventcancellation")
        rows = Order.objects.filter(event_id=event_id)
        if organizer_ids is not None:
            rows = rows.filter(event__organizer__in=organizer_ids)
        meaning = event_cancellation.describe(rows) if event_id else []
        return super().add_view(request, form_url, (extra_context or {}) | {"meaning": meaning})

    def save_model(self, request: HttpRequest, obj: EventCancellation, form: Any, change: bool) -> None:
        begun = event_cancellation.begin(obj.event_id, obj.words, f"staff:{request.user.pk}")
        obj.__dict__.update(begun.__dict__)

    def response_add(self, request: HttpRequest, obj: EventCancellation, post_url_continue: str | None = None) -> Any:
        messages.success(
            request, f"{obj.event} is canceled. Its orders are being refunded; this page shows the progress."
        )
        return redirect("admin:orders_eventcancellation_change", obj.pk)

    @admin.display(description="orders processed")
    def progress(self, row: EventCancellation) -> str:
        return f"{row.orders_done:,} of {row.orders_total:,}"

    @admin.display(description="money", ordering="refunded_minor")
    def money(self, row: EventCancellation) -> str:
        return format_money(row.refunded_minor, row.event.currency)

    @admin.action(description="Resume and retry failed orders", permissions=["resume"])
    @accounts.sensitive_action
    def resume(self, request: HttpRequest, queryset: QuerySet[EventCancellation]) -> None:
        for row in queryset:
            event_cancellation.resume(row.pk)
        messages.success(request, f"Resumed {format_count(queryset.count(), 'cancellation')}.")


@admin.register(Payment)
class PaymentAdmin(OrganizerScopedAdmin, ReadOnlyAdmin):
    organizer_path = "order__event__organizer"
    list_display = ["order", "attempt", "provider", "method", "status", "captured", "refunded", "occurred_at"]
    list_filter = ["status", "provider", "method", "created_at"]
    search_fields = ["=order__number", "=order__email", "=reference", "=id"]
    search_help_text = "A complete order number, email address, reference of the provider or id."
    list_select_related = ["order"]
    exclude = ["next_action"]
    readonly_fields = ["awaited"]
    captured = _money_column("captured_minor", "captured")
    refunded = _money_column("refunded_minor", "refunded")

    @admin.display(description="awaited from the buyer")
    def awaited(self, payment: Payment) -> str:
        return str((payment.next_action or {}).get("type", "–"))  # Without its client secret or signed address.


@admin.register(Refund)
class RefundAdmin(OrganizerScopedAdmin, ReadOnlyAdmin):
    organizer_path = "order__event__organizer"
    list_display = [
        "order",
        "amount",
        "status",
        "reason",
        "requested_by",
        "requested_at",
        "settled_at",
        "paid_out_note",
    ]
    list_filter = ["status", "requested_at"]
    search_fields = ["=order__number", "=order__email", "=reference"]
    search_help_text = "A complete order number, email address or reference of the provider."
    list_select_related = ["order"]
    amount = _money_column("amount_minor", "amount")


@admin.register(ProviderMessage)
class ProviderMessageAdmin(OrganizerScopedAdmin, ReadOnlyAdmin):
    organizer_path = "payment__order__event__organizer"
    list_display = [
        "message_id",
        "provider",
        "kind",
        "payment",
        "occurred_at",
        "received_at",
        "processed_at",
        "outcome",
    ]
    list_filter = ["provider", "kind", ("processed_at", admin.EmptyFieldListFilter), "received_at"]
    search_fields = ["=message_id", "=reference", "=payment__order__number"]
    search_help_text = "A complete message id, reference of the provider or order number."
    list_select_related = ["payment"]
    exclude = ["raw", "next_action"]
    readonly_fields = ["bytes_as_text"]

    @admin.display(description="raw")
    def bytes_as_text(self, message: ProviderMessage) -> str:
        return bytes(message.raw).decode("utf-8", "backslashreplace")


@admin.register(Ticket)
class TicketAdmin(OrganizerScopedAdmin, ReadOnlyAdmin):
    organizer_path = "order__event__organizer"
    list_display = ["label", "order", "holder", "category", "issued_at", "checked_in_at", "voided_at"]
    list_filter = [
        "order__event",
        ("checked_in_at", admin.EmptyFieldListFilter),
        ("voided_at", admin.EmptyFieldListFilter),
    ]
    # A search for a part of a code would let staff find the code out, character by character.
    search_fields = ["=code", "=order__number", "=order__email", "label", "holder"]
    search_help_text = "A complete code, order number or email address, or part of the place or of the holder's name."
    list_select_related = ["order__event"]
    exclude = ["code"]
    readonly_fields = ["code_beginning"]
    actions = ["reissue", "undo_check_in"]
    action_permissions = {"act": "orders.change_ticket", "door": "orders.check_in"}
    code_beginning = masked("code")

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        # The page's address contains the code, which admits its holder. A member may act for one organizer and only
        # read the tickets of another.
        @admin.display(description="ticket")
        def page(ticket: Ticket) -> Any:
            if not request.user.has_perm("orders.change_ticket", ticket.order.event):
                return ""
            return format_html('<a href="{}">Open</a>', reverse("orders:ticket", args=[ticket.code]))

        return [*super().get_list_display(request), *([page] if self.has_act_permission(request) else [])]

    def has_act_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("orders.change_ticket")

    def has_door_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("orders.check_in")

    @admin.action(description="Replace the code", permissions=["act"])
    @accounts.sensitive_action
    def reissue(self, request: HttpRequest, queryset: QuerySet[Ticket]) -> None:
        def reissue(ticket: Ticket) -> bool:
            ticket_reissue.reissue_ticket(ticket.order_id, ticket.code, f"staff:{request.user.pk}")
            return ticket.successor_id is None

        count = _apply(request, queryset, str, reissue)
        if count:
            messages.success(
                request,
                f"Replaced the code of {format_count(count, 'ticket')}, and emailed {'it' if count == 1 else 'them'}.",
            )

    @admin.action(description="Undo the check-in: the ticket can be used again", permissions=["door"])
    def undo_check_in(self, request: HttpRequest, queryset: QuerySet[Ticket]) -> None:
        def undo(ticket: Ticket) -> bool:
            event = events.get_event_by_id(ticket.order.event_id)
            sent = Scan(uuid.uuid4().hex, ticket.code, door="office")
            return undo_last_check_in(event, sent, f"staff:{request.user.pk}").outcome == Outcome.UNDONE

        count = _apply(request, queryset, str, undo)
        messages.success(request, f"{format_count(count, 'check-in')} undone.")


@admin.register(PaymentDifference)
class PaymentDifferenceAdmin(OrganizerScopedAdmin, ReadOnlyAdmin):
    row_names = ("difference", "differences")
    organizer_path = "order__event__organizer"
    list_display = ["kind", "provider", "reference", "order", "ours", "theirs", "first_seen_at", "settled_at", "note"]
    list_filter = [("settled_at", admin.EmptyFieldListFilter), "kind", "provider", "first_seen_at"]
    search_fields = ["=reference", "=order__number", "note"]
    search_help_text = "A complete reference of the provider or order number, or part of a note."
    list_select_related = ["order"]
    action_form = ReasonForm
    actions = ["settle"]
    action_permissions = {"act": "orders.change_paymentdifference"}
    ours = _money_column("ours_minor", "ours")
    theirs = _money_column("theirs_minor", "theirs")

    def has_act_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("orders.change_paymentdifference")

    @admin.action(description="Mark as settled: enter the cause and the solution under “why”", permissions=["act"])
    @accounts.sensitive_action
    def settle(self, request: HttpRequest, queryset: QuerySet[PaymentDifference]) -> None:
        who, note = f"staff:{request.user.pk}", request.POST.get("why", "")
        count = 0
        for difference in queryset.filter(settled_at=None):
            try:
                discrepancies.settle(difference.pk, who, note)
                count += 1
            except problems.Problem as problem:
                messages.error(request, problem.title)
                return
        messages.success(request, f"{format_count(count, 'difference')} settled.")


@admin.register(ComparedDay)
class ComparedDayAdmin(ReadOnlyAdmin):
    list_display = ["day", "provider", "captures_count", "refunds_count", "asked_at", "compared_at"]
    list_filter = ["provider"]
