"""The admin's forms of an event: the event itself, its on-sale, its price categories and its sections."""

from collections.abc import Iterable
from typing import Any

from django import forms
from django.urls import reverse

from apps.events.admin_pages import buyer_price
from apps.events.changes import CAPACITY_MAX, PRICE_MINOR_MAX
from apps.events.currencies import CODES
from apps.events.models import Category, Event, OnSale, Organizer, Section
from apps.events.organizers.default_organizer import get_default_organizer
from apps.events.plans.colors import normal_color
from apps.events.pricing import FEE_MINOR_MAX, RATE_MAX
from apps.kernel import clock
from apps.kernel.form_fields.fields import MoneyField, PercentField, set_currency
from apps.kernel.formatting import currency_name, currency_sign


class OwnedForm(forms.ModelForm):
    """A form of a new row with an organizer: without a choice, the only one that the user may choose, else the
    default."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "organizer" in self.fields:
            self.fields["organizer"].required = False

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


def _currency_choices() -> Iterable[tuple[str, str]]:
    return [("", "---------"), *((code, f"{code} – {currency_name(code)}") for code in sorted(CODES))]


class EventForm(OwnedForm):
    currency = forms.ChoiceField(choices=_currency_choices, widget=CurrencySelect)

    class Meta:
        model = Event
        fields = "__all__"  # noqa: DJ007 - The admin names the fields.

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "currency" in self.fields and not self.instance.pk:
            # Organizers rarely sell in several currencies.
            latest = Event.objects.order_by("-created_at", "-pk").values_list("currency", flat=True)
            ids = getattr(self, "organizer_ids", None)
            self.initial.setdefault("currency", (latest.filter(organizer__in=ids) if ids else latest).first())

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


class _EventPartForm(forms.ModelForm):
    def __init__(self, *args: Any, event: Event | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.event = event
        set_currency(self, event.currency if event is not None else "")


class OnSaleForm(_EventPartForm):
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
            raise forms.ValidationError("give a color as #rrggbb")
        return color


class SectionForm(forms.ModelForm):
    """Edits general admission sections: publication creates the sections with seats from the plan."""

    class Meta:
        model = Section
        fields = ("name", "slug", "capacity", "category", "position")

    needs_access = forms.BooleanField(
        required=False, label="access code", help_text="Holds in this section need an access code."
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
            raise forms.ValidationError(f"must be between 1 and {CAPACITY_MAX}")
        return capacity
