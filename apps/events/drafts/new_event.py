"""The form that creates a draft from nothing: the event, a venue that may be new, a seating plan from a file, and
tickets without seats."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

from django import forms
from django.core.files.uploadedfile import UploadedFile
from django.db import models
from django.utils.text import slugify

from apps.events.creation import (
    GeneralAdmission,
    add_venue,
    free_slug,
    lock_creation,
    plan_limits,
    read_description,
    read_performers,
    store_plan,
    write_general_admission,
)
from apps.events.currencies import currency_choices, currency_of_zone
from apps.events.drafts.general_admission import GeneralAdmissionFormSet, make_rows
from apps.events.drafts.seat_rows import SeatRowsFormSet, make_seat_rows
from apps.events.drafts.tiers import missing_tiers, write_prices
from apps.events.models import Event, OnSale, Organizer, SeatingPlan, Venue
from apps.events.models.catalog import SUMMARY_CHARACTERS_MAX
from apps.events.organizers.default_organizer import get_default_organizer
from apps.events.organizers.membership_backend import permitted_organizers
from apps.events.organizers.venue_choices import offered_venues
from apps.events.plans import Plan, PlanError, from_layout, parse_alone, reading_alone
from apps.events.plans.straight_rows import write_csv
from apps.events.publication import PUBLISH_LOCK_MS, PUBLISH_STATEMENT_MS
from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.form_fields.local_time import is_timezone, timezone_choices, timezone_names
from apps.kernel.form_fields.local_time_field import LocalTimeField, set_zone
from apps.kernel.http import problems

NEW = "new"
CURRENCY = "EUR"
_SEAT_FIELDS = frozenset({"currency", "seating", "plan_file", "plan"})
_TEXTS = ("summary", "performers", "tags", "description")
"""What the search reads besides name and venue. All are optional, and the page folds them."""
_TAGS_CHARACTERS_MAX = 300
_START_DAYS_MIN, _START_HOUR, _SATURDAY = 28, 20, 5


class Seating(models.TextChoices):
    """Where the numbered seats come from."""

    ROWS = "rows", "Rows of seats: the map is drawn for you"
    FILE = "file", "Upload a seating plan"
    EARLIER = "earlier", "The plan of an earlier event"
    NONE = "none", "No numbered seats"


class ZoneSelect(forms.Select):
    """A choice that decides the zone of the form's times; `zones` has the zone of each value. Each option has its zone
    and the currency that is used there, for the script of the page."""

    zones: Mapping[str, str] = {}

    def create_option(self, name: str, value: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        option = super().create_option(name, value, *args, **kwargs)
        zone = self.zones.get(str(value))
        if zone is not None:
            option["attrs"] |= {"data-zone": zone, "data-currency": currency_of_zone(zone)}
        return option


class NewEventForm(forms.Form):
    """What an event needs before its prices. Everything else has a default, which the event's own form shows next."""

    name = forms.CharField(
        label="Name of the event", max_length=200, error_messages={"required": "Enter the name of the event."}
    )
    organizer = forms.ModelChoiceField(Organizer.objects.none(), label="Organizer", required=False)
    venue = forms.ChoiceField(label="Venue", widget=ZoneSelect, error_messages={"required": "Choose a venue."})
    new_venue = forms.CharField(label="Name of the new venue", max_length=200, required=False)
    city = forms.CharField(
        label="City", max_length=120, required=False, help_text="Optional: shown with the name of the venue."
    )
    address = forms.CharField(
        label="Address", max_length=300, required=False, help_text="Optional: street and number, for directions."
    )
    timezone = forms.ChoiceField(
        label="Time zone", required=False, widget=ZoneSelect,
        help_text="The city whose clock the venue uses. All times of its events are shown on that clock.",
    )  # fmt: skip
    starts_at = LocalTimeField(
        label="Start", help_text="On the venue’s clock.", error_messages={"required": "Enter when the event starts."}
    )
    opens_at = LocalTimeField(
        label="Sales open", required=False,
        help_text="Empty: as soon as you publish the event.",
    )  # fmt: skip
    currency = forms.ChoiceField(label="Currency of the prices")
    seating = forms.ChoiceField(
        label="Numbered seats", choices=Seating.choices, required=False, widget=forms.RadioSelect, initial=Seating.ROWS
    )
    plan_file = forms.FileField(label="Seating plan file", required=False)
    plan = forms.ModelChoiceField(
        SeatingPlan.objects.none(), label="Earlier plan", required=False, empty_label="Choose…"
    )

    summary = forms.CharField(
        label="Short description", max_length=SUMMARY_CHARACTERS_MAX, required=False,
        help_text="One sentence, for the catalog and its search.",
    )  # fmt: skip
    performers = forms.CharField(
        label="Performers", required=False, widget=forms.Textarea({"rows": 3}),
        help_text="One a line, as in Arnold Schwarzenegger.",
    )  # fmt: skip
    tags = forms.CharField(
        label="Tags", max_length=_TAGS_CHARACTERS_MAX, required=False,
        help_text="Separated by commas, as in jazz, open air, family.",
    )  # fmt: skip
    description = forms.CharField(
        label="Description", required=False, widget=forms.Textarea({"rows": 6}), help_text="For the event’s page."
    )

    parsed: Plan | None = None
    plan_bytes = b""
    rows: GeneralAdmissionFormSet
    seat_rows: SeatRowsFormSet
    only_organizer: str
    """The organizer's name if there is no choice of it."""
    prices: Mapping[str, int] = MappingProxyType({})
    """The prices of the plan's categories, if its sections were typed."""
    general_admission: Sequence[GeneralAdmission] = ()

    def __init__(self, user: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.user = user
        self.rows, self.seat_rows = make_rows(self.data), make_seat_rows(self.data)
        allowed = permitted_organizers(user, "events.add_event")
        organizers = Organizer.objects.all() if allowed is None else Organizer.objects.filter(pk__in=allowed)
        known = list(organizers[:2])
        self.only_organizer = known[0].name if len(known) == 1 else ""
        self._choose("organizer", organizers, keep=len(known) > 1)
        last = Event.objects.filter(organizer__in=organizers).select_related("venue").order_by("-created_at").first()
        may_add_venue = user.has_perm("events.add_venue")
        rows = list(offered_venues(allowed, self.data.get("venue")))
        venues = [(str(row.pk), _venue_label(row)) for row in rows]
        offered = [*([(NEW, "A new venue")] if may_add_venue else []), *venues]
        # Several venues have no default: a show must not be published at one that was not chosen.
        self.initial["venue"] = venues[0][0] if len(venues) == 1 else "" if venues else NEW
        self._set_choices("venue", offered if self.initial["venue"] else [("", "Choose…"), *offered])
        self.fields["venue"].widget.zones = {str(row.pk): row.timezone for row in rows}
        for name in () if may_add_venue else ("new_venue", "city", "address", "timezone"):
            del self.fields[name]
        if may_add_venue:
            # Without a choice for the user: with another zone than the venue's, every time would be wrong.
            self.fields["timezone"].widget.zones = {name: name for name in timezone_names()}
            self._set_choices("timezone", [("", "Choose…"), *timezone_choices()])
        self._set_choices("currency", currency_choices())
        self.initial["currency"] = CURRENCY if last is None else last.currency
        if last is not None:
            self.initial["organizer"] = last.organizer_id
        plans = SeatingPlan.objects.filter(organizer__in=organizers).defer("layout").select_related("venue")
        self._choose("plan", plans, keep=plans.exists())
        set_zone(self.fields.values(), self._chosen_zone())
        self.initial["starts_at"] = suggest_start(self._chosen_zone() or "UTC")
        self._offer_seating(may_add_plan=user.has_perm("events.add_seatingplan"), has_plans=plans.exists())

    def _offer_seating(self, *, may_add_plan: bool, has_plans: bool) -> None:
        refused = set() if may_add_plan else {Seating.ROWS, Seating.FILE}
        if not has_plans:
            refused.add(Seating.EARLIER)
        offered = [choice for choice in Seating if choice not in refused]
        self._set_choices("seating", [(choice.value, choice.label) for choice in offered])
        self.initial["seating"] = offered[0].value
        if not may_add_plan:
            del self.fields["plan_file"]

    def event_fields(self) -> list[forms.BoundField]:
        """Return the visible fields of the event and its venue, for the first part of the page."""
        return [field for field in self.visible_fields() if field.name not in {*_SEAT_FIELDS, *_TEXTS}]

    def text_fields(self) -> list[forms.BoundField]:
        """Return the fields of the event's texts, which the page folds."""
        return [self[name] for name in _TEXTS]

    def has_texts(self) -> bool:
        """Return whether one of these was filled in, or has an error."""
        return any(field.errors or field.value() for field in self.text_fields())

    def _chosen_zone(self) -> str:
        """Return the zone of the venue, chosen or new, on whose clock the times of this form are read."""
        venue = str(self["venue"].value() or "")
        if venue != NEW:
            return _zone_of(venue) if venue.isascii() and venue.isdigit() and len(venue) < 18 else ""
        zone = str(self["timezone"].value() or "") if "timezone" in self.fields else ""
        return zone if is_timezone(zone) else ""

    def _set_choices(self, name: str, choices: Any) -> None:
        field = self.fields[name]
        assert isinstance(field, forms.ChoiceField)
        field.choices = choices

    def _choose(self, name: str, rows: Any, *, keep: bool) -> None:
        field = self.fields[name]
        assert isinstance(field, forms.ModelChoiceField)
        field.queryset = rows
        if not keep:
            field.widget = forms.HiddenInput()

    def clean_organizer(self) -> Organizer:
        chosen: Organizer | None = self.cleaned_data["organizer"]
        if chosen is not None:
            return chosen
        field = self.fields["organizer"]
        assert isinstance(field, forms.ModelChoiceField)
        offered = list(field.queryset[:2]) if field.queryset is not None else []
        if len(offered) == 1:
            return offered[0]
        if permitted_organizers(self.user, "events.add_event") is None:
            return get_default_organizer()
        raise forms.ValidationError("Choose an organizer.")

    def clean_performers(self) -> str:
        return read_performers(self.cleaned_data["performers"])

    def clean_description(self) -> str:
        return read_description(self.cleaned_data["description"])

    def clean_plan_file(self) -> UploadedFile | None:
        file: UploadedFile | None = self.cleaned_data["plan_file"]
        if not self._is_seating(Seating.FILE):
            return None  # The field is not shown.
        if file is None:
            if self.cleaned_data.get("seating"):
                raise forms.ValidationError("Choose a file, or another kind of seats.")
            return None
        limits = plan_limits()
        if file.size is None or file.size > limits.file_bytes_max:
            raise forms.ValidationError(f"The file is larger than {limits.file_bytes_max / 1024 / 1024:.0f} MiB.")
        self.plan_bytes = file.read()
        try:
            self.parsed = parse_alone(self.plan_bytes, limits)
        except PlanError as error:
            raise forms.ValidationError(f"{file.name}: {error}") from error
        return file

    def clean_plan(self) -> SeatingPlan | None:
        plan: SeatingPlan | None = self.cleaned_data["plan"]
        if not self._is_seating(Seating.EARLIER):
            return None
        if plan is None and self.cleaned_data.get("seating"):
            raise forms.ValidationError("Choose a plan, or another kind of seats.")
        return plan

    def _is_seating(self, kind: Seating) -> bool:
        """Return whether the seats come from there. A form without the choice takes what it has."""
        return self.cleaned_data.get("seating", "") in ("", kind)

    def is_valid(self) -> bool:
        return super().is_valid() and self.rows.total_error_count() == 0 and self._seat_error_count() == 0

    def _seat_error_count(self) -> int:
        return self.seat_rows.total_error_count() if self._is_seating(Seating.ROWS) else 0

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = super().clean() or self.cleaned_data
        if data.get("venue") == NEW:
            self._clean_new_venue(data)
        starts_at, opens_at = data.get("starts_at"), data.get("opens_at")
        if isinstance(starts_at, datetime) and starts_at <= clock.now():
            self.add_error("starts_at", "The event would start in the past.")
        elif isinstance(starts_at, datetime) and isinstance(opens_at, datetime) and opens_at >= starts_at:
            self.add_error("opens_at", "Sales would open after the event starts.")
        self._clean_seat_rows(data)
        plan = data.get("plan")
        if plan is not None and self.parsed is not None:
            self.add_error("plan", "Choose a file or an earlier plan, not both.")
        elif plan is not None and "organizer" in data and plan.organizer_id != data["organizer"].pk:
            self.add_error("plan", "This plan belongs to another organizer.")
        self._clean_general_admission(data)
        return data

    def _clean_seat_rows(self, data: Mapping[str, Any]) -> None:
        rows = self.seat_rows
        if not self._is_seating(Seating.ROWS) or self.parsed is not None or data.get("plan") is not None:
            return
        if "plan_file" not in self.fields or not rows.is_bound or not rows.is_valid() or "currency" not in data:
            return
        sections = rows.read(data["currency"])
        if not sections and data.get("seating") and not rows.total_error_count():
            self.add_error("seating", "Enter a section with seats, or choose another kind of seats.")
        if not sections or rows.total_error_count():
            return
        self.plan_bytes = write_csv([section.rows for section in sections])
        try:
            self.parsed = parse_alone(self.plan_bytes, plan_limits())
        except PlanError as error:
            self.add_error("seating", str(error))
            return
        self.prices = {section.rows.name: section.price_minor for section in sections}

    def _clean_general_admission(self, data: Mapping[str, Any]) -> None:
        plan, stored = self.parsed, data.get("plan")
        if plan is None and stored is not None:
            try:
                with reading_alone(self.user.pk, stored.seat_count):
                    plan = from_layout(stored.layout)
            except problems.Busy as busy:
                self.add_error("plan", str(busy))
                return
        taken = {} if plan is None else {section.slug: section.name for section in plan.sections}
        categories = [] if plan is None else [category.name for category in plan.categories]
        if self.rows.is_bound and self.rows.is_valid() and "currency" in data:
            self.general_admission = self.rows.read(data["currency"], taken, categories)
            if data.get("seating") == Seating.NONE and not self.general_admission and self.rows.is_valid():
                self.add_error("seating", "Enter the tickets below, or choose numbered seats.")

    def _clean_new_venue(self, data: dict[str, Any]) -> None:
        name = data.get("new_venue", "").strip()
        if not name:
            self.add_error("new_venue", "Enter the name of the venue, or choose one above.")
        if not data.get("timezone"):
            self.add_error("timezone", "Choose the time zone of the venue.")
        found = Venue.objects.filter(name=name).first() if name else None
        if found is not None:
            self._offer_venue_of_name(found)

    def _offer_venue_of_name(self, found: Venue) -> None:
        """Refuse a new venue with the name of another one, and offer that one, which the form may not list. It may be
        in another town, so it is not taken without a choice."""
        field = self.fields["venue"]
        assert isinstance(field, forms.ChoiceField)
        if not field.valid_value(str(found.pk)):
            listed = field.widget.choices
            self._set_choices("venue", [*listed, (str(found.pk), _venue_label(found))])
            field.widget.zones = {**field.widget.zones, str(found.pk): found.timezone}
        where = ", ".join(part for part in (found.name, found.address, found.city) if part)
        self.add_error(
            "new_venue",
            f"There is a venue of this name: {where}. Choose it above, or add the town to the name of yours.",
        )


def _venue_label(venue: Venue) -> str:
    return f"{venue.name}, {venue.city}" if venue.city else venue.name


def suggest_start(timezone: str) -> str:
    """Return eight in the evening of a Saturday in four to five weeks, as the form's input writes it."""
    day = (clock.now() + timedelta(days=_START_DAYS_MIN)).astimezone(ZoneInfo(timezone)).date()
    day += timedelta(days=(_SATURDAY - day.weekday()) % 7)
    return f"{day}T{_START_HOUR:02}:00"


def _zone_of(venue_id: Any) -> str:
    found = Venue.objects.filter(pk=venue_id).values_list("timezone", flat=True).first() if venue_id else None
    return found or ""


@dataclass(frozen=True, slots=True)
class NewDraft:
    event_id: int
    name: str
    notes: tuple[str, ...]
    """What was left out of the plan's file."""
    is_priced: bool
    """Whether it has something to sell, with a price for everything."""


def create_draft(
    data: Mapping[str, Any],
    plan: Plan | None,
    plan_bytes: bytes,
    general_admission: Sequence[GeneralAdmission] = (),
    prices: Mapping[str, int] = MappingProxyType({}),
) -> NewDraft:
    """Create the draft that a valid NewEventForm describes, with its on-sale, its tickets without seats, and its venue
    and plan if they are new. `prices` are those of the plan's categories, as far as they are known. Raises EventRefused
    if another user has just created the venue."""
    with transactions.write(lock_ms=PUBLISH_LOCK_MS, statement_ms=PUBLISH_STATEMENT_MS):
        # The creations wait for each other, so that two of them find each other's venue and take different slugs.
        lock_creation()
        organizer = data["organizer"]
        if data["venue"] == NEW:
            venue = add_venue(data["new_venue"].strip(), data["city"], data["address"], data["timezone"])
        else:
            venue = Venue.objects.get(pk=data["venue"])
        stored = data.get("plan")
        if plan is not None:
            stored = store_plan(organizer, venue, plan, plan_bytes, data["name"])
        event = Event.objects.create(
            slug=free_slug(Event, slugify(data["name"])[:70] or "event"),
            name=data["name"],
            organizer=organizer,
            venue=venue,
            plan=stored,
            starts_at=data["starts_at"],
            currency=data["currency"],
            **{name: data.get(name, "") for name in _TEXTS},
        )
        OnSale.objects.create(event=event, opens_at=data["opens_at"] or event.opening_at_once())
        write_prices(event, prices)
        layout = stored.layout if stored is not None else {"categories": [], "sections": []}
        write_general_admission(
            event,
            general_admission,
            colors=[color for _, color in layout["categories"]],
            first_category=len(layout["categories"]),
            first_section=len(layout["sections"]),
        )
    is_priced = bool(general_admission or prices) and not missing_tiers(event)
    return NewDraft(event.pk, event.name, plan.notes if plan is not None else (), is_priced)
