"""Scheduled changes of the stock: open or close a section, change a price. They are recorded as those of staff."""

from typing import Any

from django import forms
from django.db import connection

from apps.events import facade as events
from apps.kernel.form_fields.amounts import InvalidAmount, parse_money
from apps.kernel.scheduler import facade as scheduler
from apps.reservations.staff import access_restrictions, stock, tiers

OPEN_SECTION = "reservations.open_section"
CLOSE_SECTION = "reservations.close_section"
REPRICE = "reservations.reprice"


def register() -> None:
    """Register the kinds of tasks of this app."""
    scheduler.register_task(
        OPEN_SECTION,
        _open_section,
        SectionParams,
        label="Open a section to all buyers",
        permission="reservations.change_accesscode",
        idempotent=True,
        lock_ms=stock.LOCK_WAIT_MS,
        statement_ms=stock.STATEMENT_MS,
    )
    scheduler.register_task(
        CLOSE_SECTION,
        _close_section,
        SectionParams,
        label="Close a section to buyers without an access code",
        permission="reservations.change_accesscode",
        idempotent=True,
        lock_ms=stock.LOCK_WAIT_MS,
        statement_ms=stock.STATEMENT_MS,
    )
    scheduler.register_task(
        REPRICE,
        _change_price,
        PriceParams,
        label="Change a price",
        permission="events.change_category",
        idempotent=True,
        lock_ms=stock.LOCK_WAIT_MS,
        statement_ms=stock.STATEMENT_MS,
    )


class SectionParams(scheduler.TaskParams):
    section = forms.ChoiceField()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        sections = events.list_sections(self.scope.event_id) if self.scope.event_id is not None else []
        field = self.fields["section"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [(one.slug, one.name) for one in sections]


class PriceParams(scheduler.TaskParams):
    category = forms.ChoiceField(label="Price category")
    price = forms.CharField(max_length=40, help_text="For new reservations; tickets in a cart keep their price.")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        categories = events.list_categories(self.scope.event_id) if self.scope.event_id is not None else []
        field = self.fields["category"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [(one.key, one.name) for one in categories]

    def clean_price(self) -> str:
        event = None if self.scope.event_id is None else events.get_staff_event(self.scope.event_id)
        price: str = self.cleaned_data["price"]
        try:
            if event is not None:
                parse_money(price, event.currency, minor_max=events.PRICE_MINOR_MAX)
        except InvalidAmount as error:
            raise forms.ValidationError(str(error)) from error
        return price


def _open_section(run: scheduler.Run) -> str:
    return _guard(run, needs_access=False)


def _close_section(run: scheduler.Run) -> str:
    return _guard(run, needs_access=True)


def _guard(run: scheduler.Run, *, needs_access: bool) -> str:
    event, section = events.get_event_by_id(run.event_id), run.params["section"]
    with connection.cursor() as cursor:
        is_changed = access_restrictions.guard_on(
            cursor, event, section, needs_access=needs_access, who=run.who, why=f"scheduled task {run.task_id}"
        )
    state = "closed" if needs_access else "open"
    return f"{section} is {state}" if is_changed else f"{section} was {state} already"


def _change_price(run: scheduler.Run) -> str:
    event = events.get_event_by_id(run.event_id)
    price_minor = parse_money(run.params["price"], event.currency, minor_max=events.PRICE_MINOR_MAX)
    with connection.cursor() as cursor:
        changed = tiers.reprice_on(
            cursor, event, run.params["category"], price_minor, who=run.who, why=f"scheduled task {run.task_id}"
        )
    return f"{changed.category} costs {run.params['price']} {event.currency}"
