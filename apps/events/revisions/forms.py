"""The forms of changes to a published event. Times are on the venue's clock."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django import forms

from apps.events.event_views import EventView
from apps.events.models.catalog import DEADLINE_SECONDS_MIN, HOLD_SECONDS_MAX, PAYMENT_SECONDS_MAX
from apps.events.models.revisions import MESSAGE_LENGTH_MAX
from apps.events.pricing import FEE_MINOR_MAX, RATE_MAX
from apps.events.revisions.proposal import RETURN_DAYS_MAX, Kind, values_of
from apps.events.revisions.service import WHY_LENGTH_MAX
from apps.kernel.form_fields.fields import DurationField, MoneyField, PercentField, set_currency
from apps.kernel.form_fields.local_time_field import LocalTimeField

RETURN_DAYS = 14


class ChangeForm(forms.Form):
    """The values of one kind of change, with the reason. `field_order` puts the values first."""

    kind: str
    why = forms.CharField(
        label="Reason", max_length=WHY_LENGTH_MAX, help_text="Recorded with your name; buyers do not see it."
    )

    def __init__(self, event: EventView, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(data, initial=values_of(event, self.kind), auto_id=f"id_{self.kind}-%s")
        for name, field in self.values(event).items():
            self.fields[name] = field
        self.order_fields([*self.values(event), "message", "return_days", "why"])
        self.event = event

    def values(self, event: EventView) -> dict[str, forms.Field]:
        raise NotImplementedError

    def wanted(self) -> dict[str, Any]:
        """Return the values that the user changed."""
        before = values_of(self.event, self.kind)
        given = {name: self.cleaned_data[name] for name in self.values(self.event)}
        return {name: value for name, value in given.items() if not _is_same(value, before[name])}


def _is_same(value: Any, before: Any) -> bool:
    # The form has whole seconds: a time with fractions that the user left alone is not a change.
    if isinstance(value, datetime) and isinstance(before, datetime):
        return value == before.replace(microsecond=0)
    return bool(value == before)


class ScheduleForm(ChangeForm):
    kind = Kind.SCHEDULE
    message = forms.CharField(
        label="Message to the buyers", required=False, max_length=MESSAGE_LENGTH_MAX,
        widget=forms.Textarea(attrs={"rows": 4}),
        help_text="Part of the email, which names the old and the new time and says that tickets stay valid.",
    )  # fmt: skip
    return_days = forms.IntegerField(
        label="Return window, days", min_value=1, max_value=RETURN_DAYS_MAX, initial=RETURN_DAYS,
        help_text="For a new date: how long buyers may return tickets for a full refund, at most until it starts.",
    )  # fmt: skip

    def __init__(self, event: EventView, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(event, data)
        self.initial["return_days"] = RETURN_DAYS

    def values(self, event: EventView) -> dict[str, forms.Field]:
        zone = event.timezone
        return {
            "starts_at": LocalTimeField(zone, label="Start"),
            "doors_at": LocalTimeField(
                zone, label="Doors open", required=False, help_text="Left as it is, it moves with the start."
            ),
            "ends_at": LocalTimeField(
                zone, label="End", required=False, help_text="Left as it is, it moves with the start."
            ),
        }


class OnSaleForm(ChangeForm):
    kind = Kind.ON_SALE

    def values(self, event: EventView) -> dict[str, forms.Field]:
        zone, policy = event.timezone, event.policy
        fields: dict[str, forms.Field] = {
            "opens_at": LocalTimeField(zone, label="Sales open"),
            "closes_at": LocalTimeField(
                zone, label="Sales end", required=False, help_text="Empty: when the event starts."
            ),
        }
        if policy.presale is not None:
            fields["presale_until"] = LocalTimeField(zone, label="Presale ends")
        return fields


class LimitsForm(ChangeForm):
    kind = Kind.LIMITS

    def values(self, event: EventView) -> dict[str, forms.Field]:
        return {
            "seats_per_reservation_max": forms.IntegerField(label="Tickets at a time, at most", min_value=1),
            "per_buyer_max": forms.IntegerField(
                label="Tickets per buyer, at most", min_value=1, required=False, help_text="Empty: no limit."
            ),
            "hold_seconds": DurationField(
                seconds_min=DEADLINE_SECONDS_MIN, seconds_max=HOLD_SECONDS_MAX, label="Time to pay"
            ),
            "payment_seconds": DurationField(
                seconds_min=DEADLINE_SECONDS_MIN, seconds_max=PAYMENT_SECONDS_MAX, label="Time that a payment may take"
            ),
        }


class FeesForm(ChangeForm):
    kind = Kind.FEES

    def values(self, event: EventView) -> dict[str, forms.Field]:
        fields: dict[str, forms.Field] = {
            "ticket_fee_minor": MoneyField(minor_max=FEE_MINOR_MAX, label="Fee per ticket"),
            "ticket_fee_rate": PercentField(rate_max=RATE_MAX, label="Fee per ticket, share of its price"),
            "order_fee_minor": MoneyField(minor_max=FEE_MINOR_MAX, label="Fee per order"),
            "waives_fees_when_free": forms.BooleanField(label="No fees on free tickets", required=False),
            "tax_rate": PercentField(rate_max=RATE_MAX, label="Tax rate"),
            "tax_included": forms.BooleanField(label="Prices and fees include the tax", required=False),
        }
        set_currency(fields.values(), event.currency)
        return fields


FORMS: dict[str, type[ChangeForm]] = {form.kind: form for form in (ScheduleForm, OnSaleForm, LimitsForm, FeesForm)}
