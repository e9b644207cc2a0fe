"""The rows of the form of a new event for tickets without seats: a name, how many there are, and their price."""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, cast

from django import forms
from django.utils.text import slugify

from apps.events.changes import CAPACITY_MAX, PRICE_MINOR_MAX
from apps.events.creation import GeneralAdmission
from apps.events.plans.plan import CATEGORY_CHARACTERS_MAX
from apps.kernel.form_fields.amounts import InvalidAmount, parse_money

PREFIX = "tickets"
ROWS = 3
"""Rows of the form. The event's own form takes more sections."""


class SectionRowForm(forms.Form):
    """One section with its price; all fields empty: none."""

    name = forms.CharField(label="Name", max_length=CATEGORY_CHARACTERS_MAX, required=False)
    price = forms.CharField(
        label="Price", max_length=40, required=False, widget=forms.TextInput(attrs={"inputmode": "decimal"})
    )
    needed: Mapping[str, str] = MappingProxyType({})
    """The fields of a filled row, and what to say if one is empty."""

    def has_changed(self) -> bool:
        return any(str(self[name].value() or "").strip() for name in self.fields)

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        if name and (not name.isprintable() or not slugify(name)):
            raise forms.ValidationError("Enter a name with a letter or a digit.")
        return name

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = super().clean() or self.cleaned_data
        if self.has_changed():
            for field, text in self.needed.items():
                if field not in self.errors and data.get(field) in (None, ""):
                    self.add_error(field, text)
        return data


class GeneralAdmissionForm(SectionRowForm):
    """One section of general admission."""

    capacity = forms.IntegerField(label="Number of tickets", min_value=1, max_value=CAPACITY_MAX, required=False)
    field_order = ("name", "capacity", "price")
    needed = MappingProxyType(
        {
            "name": "Enter a name, such as Floor.",
            "capacity": "Enter how many tickets there are.",
            "price": "Enter the price; 0 for free tickets.",
        }
    )


class GeneralAdmissionFormSet(forms.BaseFormSet):
    """The rows together. `read` parses them once the event's currency and plan are known."""

    def is_filled(self) -> bool:
        return any(form.has_changed() for form in self.forms)

    def read(self, currency: str, taken: Mapping[str, str], categories: Collection[str]) -> list[GeneralAdmission]:
        """Return the sections of the filled rows. Adds errors to rows whose price cannot be read, or whose name is that
        of another row, of a section of the plan (`taken`: id to name) or of one of its price categories."""
        found, slugs = [], dict(taken)
        for form in self.forms:
            if not form.has_changed() or form.errors:
                continue
            name = form.cleaned_data["name"]
            if slugify(name) in slugs:
                form.add_error("name", f"There is a section “{slugs[slugify(name)]}” already.")
            elif name in categories:
                form.add_error("name", f"The seating plan has a price category “{name}” already.")
            slugs[slugify(name)] = name
            try:
                price_minor = parse_money(form.cleaned_data["price"], currency, minor_max=PRICE_MINOR_MAX)
            except InvalidAmount as error:
                form.add_error("price", str(error))
            else:
                found.append(GeneralAdmission(name, form.cleaned_data["capacity"], price_minor))
        return found


_Rows = forms.formset_factory(
    GeneralAdmissionForm, formset=GeneralAdmissionFormSet, extra=ROWS, max_num=ROWS, absolute_max=ROWS
)


def make_rows(data: Mapping[str, Any]) -> GeneralAdmissionFormSet:
    """Return the rows of the submitted form; empty ones if it has none."""
    has_rows = f"{PREFIX}-TOTAL_FORMS" in data
    return cast("GeneralAdmissionFormSet", _Rows(data if has_rows else None, prefix=PREFIX))
