"""The admin's forms of an event: the event itself, its on-sale, its price categories and its sections."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from django import forms
from django.urls import reverse

from apps.events.changes import CAPACITY_MAX, PRICE_MINOR_MAX
from apps.events.creation import ROOM_ACTIVE_MAX, ROOM_RATE_MAX, read_description, read_performers
from apps.events.currencies import currency_choices
from apps.events.models import Category, Event, OnSale, Organizer, Section
from apps.events.models.catalog import DEADLINE_SECONDS_MIN, HOLD_SECONDS_MAX, PAYMENT_SECONDS_MAX
from apps.events.organizers.default_organizer import get_default_organizer
from apps.events.organizers.venue_choices import offered_venues
from apps.events.plans.colors import normal_color
from apps.events.pricing import FEE_MINOR_MAX, RATE_MAX
from apps.events.staff import buyer_price
from apps.kernel import clock
from apps.kernel.form_fields.fields import DurationField, MoneyField, PercentField, set_currency
from apps.kernel.form_fields.local_time_field import LocalTimeField, set_zone
from apps.kernel.formatting import currency_sign


class OwnedForm(forms.ModelForm):
    """A form of a new row with an organizer: without a choice, the only one that the user may choose, else the
    default."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "organizer" in self.fields:
            self.fields["organizer"].required = False
        venue = self.fields.get("venue")
        if isinstance(venue, forms.ModelChoiceField):
            organizer_ids = getattr(self, "organizer_ids", None)
            venue.queryset = offered_venues(
                organizer_ids, self.data.get(self.add_prefix("venue")) or self.instance.venue_id
            )

    def clean_organizer(self) -> Organizer:
        chosen: Organizer | None = self.cleaned_data["organizer"]
        if chosen is not None:
            return chosen
        field = self.fields["organizer"]
        assert isinstance(field, forms.ModelChoiceField)
        assert field.queryset is not None
        offered = list(field.queryset[:2])
        if len(offered) == 1:
            return offered[0]
        if not hasattr(self, "organizer_ids"):
            return get_default_organizer()
        raise forms.ValidationError("Choose an organizer.")


class CurrencySelect(forms.Select):
    """A choice of currencies. Each option has its sign, which a script puts before the form's amounts."""

    def create_option(self, name: str, value: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        option = super().create_option(name, value, *args, **kwargs)
        if value:
            option["attrs"]["data-sign"] = currency_sign(value)
        return option


def _currency_choices() -> Iterable[Any]:
    return [("", "---------"), *currency_choices()]


class VenueSelect(forms.Select):
    """A choice of venues. Each option has its time zone, which a script puts beside the form's times."""

    def create_option(self, name: str, value: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        option = super().create_option(name, value, *args, **kwargs)
        venue = getattr(value, "instance", None)
        if venue is not None:
            option["attrs"]["data-zone"] = venue.timezone
        return option


class EventForm(OwnedForm):
    doors_at = LocalTimeField(
        label="Doors open at", required=False, help_text="When people are let in; empty: not announced."
    )
    starts_at = LocalTimeField(label="Starts at")
    ends_at = LocalTimeField(
        label="Ends at", required=False, help_text="The expected end, for calendars; empty: not announced."
    )
    currency = forms.ChoiceField(choices=_currency_choices, widget=CurrencySelect)

    class Meta:
        model = Event
        fields = "__all__"  # noqa: DJ007 - The admin names the fields.
        widgets = {"venue": VenueSelect}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "language" in self.fields:
            self.fields["language"].required = False
        set_zone(self.fields.values(), self._chosen_zone())

    def clean_language(self) -> str:
        return self.cleaned_data["language"] or self.instance.language

    def clean_description(self) -> str:
        return read_description(self.cleaned_data["description"])

    def clean_performers(self) -> str:
        return read_performers(self.cleaned_data["performers"])

    def _chosen_zone(self) -> str:
        """Return the zone of the venue that is chosen in the same form, on whose clock times are read."""
        field = self.fields.get("venue")
        if field is None:
            return zone_of(self.instance)
        chosen = self["venue"].value()
        try:
            venue = field.clean(chosen) if chosen else None
        except forms.ValidationError:
            return ""  # The field itself has the error.
        return "" if venue is None else str(venue.timezone)

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = super().clean() or self.cleaned_data
        organizer, plan = data.get("organizer"), data.get("plan")
        if organizer is not None and plan is not None and plan.organizer_id != organizer.pk:
            self.add_error("plan", "This plan belongs to another organizer.")
        return data


class EventPartFormSet(forms.BaseInlineFormSet):
    """Parts of an event. Their forms know the event, also before it is saved, and with it the currency of amounts."""

    def get_form_kwargs(self, index: int | None) -> dict[str, Any]:
        return {**super().get_form_kwargs(index), "event": self.instance}


def zone_of(event: Event) -> str:
    """Return the zone of the event's venue; "" for an event without one yet."""
    return event.venue.timezone if event.venue_id else ""


class _EventPartForm(forms.ModelForm):
    def __init__(self, *args: Any, event: Event | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.event = event
        set_currency(self.fields.values(), event.currency if event is not None else "")
        set_zone(self.fields.values(), zone_of(event) if event is not None else "")


class OnSaleForm(_EventPartForm):
    opens_at = LocalTimeField(
        label="Sales open at", required=False, help_text="Empty: as soon as you publish the event."
    )
    closes_at = LocalTimeField(label="Sales end at", required=False, help_text="Empty: when the event starts.")
    room_lobby_opens_at = LocalTimeField(
        label="Lobby opens at", required=False,
        help_text="Visitors gather from then until sales open, and a draw numbers them; empty: no lobby.",
    )  # fmt: skip
    presale_until = LocalTimeField(
        label="Presale ends at", required=False, help_text="The presale begins when sales open, and ends at this time."
    )
    sign_up_closes_at = LocalTimeField(
        label="Sign-up closes at", required=False,
        help_text="A presale by sign-up: sign-up opens with the lobby and closes at this time.",
    )  # fmt: skip
    hold_seconds = DurationField(
        seconds_min=DEADLINE_SECONDS_MIN, seconds_max=HOLD_SECONDS_MAX, label="Time to pay",
        help_text="How long reserved tickets wait for their payment; from 30 seconds.",
    )  # fmt: skip
    payment_seconds = DurationField(
        seconds_min=DEADLINE_SECONDS_MIN, seconds_max=PAYMENT_SECONDS_MAX, label="Time for a payment",
        help_text="Longest time that a payment may take; from 30 seconds.",
    )  # fmt: skip
    ticket_fee_minor = MoneyField(
        minor_max=FEE_MINOR_MAX, label="Fee per ticket", required=False, empty_value=0,
        help_text="On top of each ticket's price.",
    )  # fmt: skip
    ticket_fee_rate = PercentField(
        rate_max=RATE_MAX, label="Fee per ticket, share", required=False, empty_value=0,
        help_text="Percentage of each ticket's price, in addition to the fee above.",
    )  # fmt: skip
    order_fee_minor = MoneyField(
        minor_max=FEE_MINOR_MAX, label="Fee per order", required=False, empty_value=0,
        help_text="Once per order.",
    )  # fmt: skip
    tax_rate = PercentField(
        rate_max=RATE_MAX, label="Tax rate", required=False, empty_value=0,
        help_text="On prices and fees; a category may have its own.",
    )  # fmt: skip

    class Meta:
        model = OnSale
        fields = "__all__"  # noqa: DJ007 - The admin names the fields.

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        event = self.event
        if self.instance.opens_at is not None and event is not None and event.opens_at_once(self.instance.opens_at):
            self.initial["opens_at"] = None

    def clean_opens_at(self) -> datetime:
        opens_at: datetime | None = self.cleaned_data["opens_at"]
        if opens_at is not None:
            return opens_at
        if self.event is None or self.event.created_at is None or self.event.starts_at is None:
            raise forms.ValidationError("Enter when sales open.")
        return self.event.opening_at_once()

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = super().clean() or self.cleaned_data
        for check, names in _ON_SALE_CHECKS:
            if names & self.errors.keys():
                continue  # What depends on an unreadable value cannot be checked.
            for name, error in list(check(data)):
                if name in self.fields and name not in self.errors:
                    self.add_error(name, error)
        return data


def _period_errors(data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    opens_at, closes_at = data.get("opens_at"), data.get("closes_at")
    if closes_at is not None and opens_at is not None and closes_at <= opens_at:
        yield "closes_at", "Sales must end after they open."


def _room_errors(data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each field of the waiting room whose value lacks another one or contradicts it, with a sentence. A room
    that was asked for is complete, or the form is refused: otherwise the sale would begin without it."""
    rate, most = data.get("room_rate_per_second"), data.get("room_active_max")
    lobby, opens_at = data.get("room_lobby_opens_at"), data.get("opens_at")
    if rate is not None and not 1 <= rate <= ROOM_RATE_MAX:
        yield "room_rate_per_second", f"Enter 1 to {ROOM_RATE_MAX:,}, or leave both waiting-room fields empty."
    if most is not None and not 1 <= most <= ROOM_ACTIVE_MAX:
        yield "room_active_max", f"Enter 1 to {ROOM_ACTIVE_MAX:,}, or leave both waiting-room fields empty."
    if rate is not None and most is None:
        yield "room_rate_per_second", "A rate needs a cap as well: without it, the waiting room would stay off."
        yield "room_active_max", "Enter how many visitors may shop at the same time."
    if most is not None and rate is None:
        yield "room_active_max", "A cap needs a rate as well: without it, the waiting room would stay off."
        yield "room_rate_per_second", "Enter how many visitors are admitted per second."
    if lobby is not None and rate is None and most is None:
        yield "room_lobby_opens_at", "A lobby needs a waiting room: enter its rate and its cap."
        yield "room_rate_per_second", "Enter how many visitors are admitted per second."
        yield "room_active_max", "Enter how many visitors may shop at the same time."
    if lobby is not None and opens_at is not None and lobby >= opens_at:
        yield "room_lobby_opens_at", "The lobby must open before sales do."


def _presale_errors(data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    condition, until = data.get("presale_condition"), data.get("presale_until")
    lobby, opens_at, closes_at = (data.get(name) for name in ("room_lobby_opens_at", "opens_at", "sign_up_closes_at"))
    if condition and until is None:
        yield "presale_until", "Enter when the presale ends."
    if until is not None and not condition:
        yield "presale_condition", "Choose who may buy during the presale."
    if until is not None and opens_at is not None and until <= opens_at:
        yield "presale_until", "The presale must end after sales open."
    if closes_at is not None and condition != OnSale.Presale.SIGN_UP:
        yield "sign_up_closes_at", "Only a presale by sign-up has this time: choose it, or leave this empty."
    if condition != OnSale.Presale.SIGN_UP:
        return
    if lobby is None:
        yield "room_lobby_opens_at", "A presale by sign-up needs a lobby: enter when it opens."
    if closes_at is None:
        yield "sign_up_closes_at", "Enter when sign-up closes."
    elif (lobby is not None and closes_at <= lobby) or (opens_at is not None and closes_at > opens_at):
        yield "sign_up_closes_at", "Sign-up must close after the lobby opens, and before sales open."


_ON_SALE_CHECKS: tuple[tuple[Callable[[Mapping[str, Any]], Iterator[tuple[str, str]]], frozenset[str]], ...] = (
    (_period_errors, frozenset({"opens_at", "closes_at"})),
    (_room_errors, frozenset({"opens_at", "room_rate_per_second", "room_active_max", "room_lobby_opens_at"})),
    (
        _presale_errors,
        frozenset({"opens_at", "room_lobby_opens_at", "presale_condition", "presale_until", "sign_up_closes_at"}),
    ),
)
"""The checks of an on-sale, with the fields that each reads."""


class CategoryForm(_EventPartForm):
    price_minor = MoneyField(minor_max=PRICE_MINOR_MAX, label="Price")
    tax_rate = PercentField(rate_max=RATE_MAX, label="Tax rate", required=False, help_text="Empty: the event's rate.")

    class Meta:
        model = Category
        fields = ("key", "name", "color", "price_minor", "tax_rate", "position")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        price = self.fields.get("price_minor")
        if price is None:
            return
        price.widget.attrs["data-notes-url"] = reverse(buyer_price.URL_NAME)
        on_sale = getattr(self.event, "on_sale", None) if self.event is not None and self.event.pk else None
        if self.instance.pk and on_sale is not None and self.event is not None:
            price.widget.note = buyer_price.describe_buyer_price(
                self.instance.price_minor, self.instance.tax_rate, on_sale.price_policy, self.event.currency
            )

    def clean_color(self) -> str:
        color = normal_color(self.cleaned_data["color"])
        if not color:
            raise forms.ValidationError("Enter a color as #rrggbb.")
        return color


class SectionForm(forms.ModelForm):
    """Edits general admission sections: publication creates the sections with seats from the plan."""

    class Meta:
        model = Section
        fields = ("name", "slug", "capacity", "category", "position")

    needs_access = forms.BooleanField(
        required=False, label="access code", help_text="Buyers need an access code for this section."
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["needs_access"].initial = self.instance.needs_access
        if not self.instance.kind:
            self.instance.kind = Section.Kind.GENERAL_ADMISSION
        if "category" in self.fields:
            self.fields["category"].required = self.instance.kind == Section.Kind.GENERAL_ADMISSION

    def save(self, commit: bool = True) -> Section:
        if self.cleaned_data["needs_access"] != self.instance.needs_access:
            self.instance.needs_access_since = clock.now() if self.cleaned_data["needs_access"] else None
        saved: Section = super().save(commit)
        return saved

    def clean_capacity(self) -> int:
        capacity: int = self.cleaned_data["capacity"]
        if not 1 <= capacity <= CAPACITY_MAX:
            raise forms.ValidationError(f"Enter a number from 1 to {CAPACITY_MAX:,}.")
        return capacity
