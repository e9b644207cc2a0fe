"""The rows of the form of a new event for numbered seats: a section's name, its rows, the seats of each, and their
price. They become a seating plan."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

from django import forms
from django.utils.text import slugify

from apps.events.changes import PRICE_MINOR_MAX
from apps.events.drafts.general_admission import SectionRowForm
from apps.events.plans.plan import CATEGORY_CHARACTERS_MAX
from apps.events.plans.straight_rows import ROWS_MAX, SEATS_PER_ROW_MAX, SeatRows
from apps.kernel.form_fields.amounts import InvalidAmount, parse_money

PREFIX = "seats"
SECTIONS = 3
"""Sections of the form. A file may have more."""
_EXAMPLE = {"name": "Stalls", "row_count": 10, "seats_per_row": 12}


@dataclass(frozen=True, slots=True)
class PricedRows:
    rows: SeatRows
    price_minor: int


class SeatRowsForm(SectionRowForm):
    """One section of straight rows."""

    name = forms.CharField(label="Section", max_length=CATEGORY_CHARACTERS_MAX, required=False)
    row_count = forms.IntegerField(label="Rows", min_value=1, max_value=ROWS_MAX, required=False)
    seats_per_row = forms.IntegerField(label="Seats per row", min_value=1, max_value=SEATS_PER_ROW_MAX, required=False)
    field_order = ("name", "row_count", "seats_per_row", "price")
    needed = MappingProxyType(
        {
            "name": "Enter a name, such as Stalls.",
            "row_count": "Enter how many rows there are.",
            "seats_per_row": "Enter how many seats each row has.",
            "price": "Enter the price; 0 for free tickets.",
        }
    )


class SeatRowsFormSet(forms.BaseFormSet):
    """The sections together. `read` parses them once the event's currency is known."""

    def read(self, currency: str) -> list[PricedRows]:
        """Return the filled sections. Adds errors to those whose price cannot be read, or whose name another has."""
        found: list[PricedRows] = []
        slugs: dict[str, str] = {}
        for form in self.forms:
            if not form.has_changed() or form.errors:
                continue
            name = form.cleaned_data["name"]
            if slugify(name) in slugs:
                form.add_error("name", f"There is a section “{slugs[slugify(name)]}” already.")
            slugs[slugify(name)] = name
            try:
                price_minor = parse_money(form.cleaned_data["price"], currency, minor_max=PRICE_MINOR_MAX)
            except InvalidAmount as error:
                form.add_error("price", str(error))
            else:
                rows = SeatRows(name, form.cleaned_data["row_count"], form.cleaned_data["seats_per_row"])
                found.append(PricedRows(rows, price_minor))
        return found


_Sections = forms.formset_factory(
    SeatRowsForm, formset=SeatRowsFormSet, extra=SECTIONS, max_num=SECTIONS, absolute_max=SECTIONS
)


def make_seat_rows(data: Mapping[str, Any]) -> SeatRowsFormSet:
    """Return the sections of the submitted form; an unsubmitted one begins with an example."""
    sent = data if f"{PREFIX}-TOTAL_FORMS" in data else None
    return cast("SeatRowsFormSet", _Sections(sent, prefix=PREFIX, initial=None if sent else [_EXAMPLE]))
