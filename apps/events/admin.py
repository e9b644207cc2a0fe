"""Admin of the catalog: venues, plans from files, drafts and their publication. Published events are read-only."""

from contextlib import suppress
from typing import Any, cast

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.files.uploadedfile import UploadedFile
from django.db.models import ForeignKey, Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.events import registries
from apps.events.admin_pages.forms import (
    CategoryForm,
    EventForm,
    EventPartFormSet,
    OnSaleForm,
    OwnedForm,
    SectionForm,
)
from apps.events.admin_pages.inlines import event_inlines
from apps.events.announcements import admin as announcements_admin
from apps.events.creation import plan_limits, store_plan
from apps.events.drafts.admin_mixin import EventPagesMixin
from apps.events.drafts.large_plans import count_draft_seats
from apps.events.drafts.tiers import missing_tiers
from apps.events.interest import admin as interest_admin
from apps.events.models import Category, Event, OnSale, Seat, SeatingPlan, Section, Venue
from apps.events.organizers import admin as organizers_admin
from apps.events.organizers.admin_scope import OrganizerScopedAdmin
from apps.events.organizers.event_values import EventValuesMixin
from apps.events.organizers.membership_backend import permitted_organizers
from apps.events.plans import LARGE_SEATS, Plan, PlanError, keeping_turn, parse_alone, reading_alone
from apps.events.preview import pages as preview
from apps.events.publication import EventRefused, lock_event, publish_event
from apps.events.scheduled_tasks import admin as tasks_admin
from apps.events.search import admin as search_admin
from apps.events.staff import buyer_price
from apps.kernel.admin_lists import INLINE_ROWS_MAX, DeclaredFiltersMixin, ReadOnlyAdmin
from apps.kernel.form_fields.local_time import timezone_choices
from apps.kernel.http import problems

__all__ = [
    "announcements_admin",
    "interest_admin",
    "organizers_admin",
    "search_admin",
    "tasks_admin",
]  # Imported so that its admin classes are registered: Django autodiscovers only this file.


CHANGE_EVENT = "events.change_event"


class VenueForm(forms.ModelForm):
    # A choice without a default: all times of the venue's events are shown in its zone.
    timezone = forms.ChoiceField(
        choices=lambda: [("", "Choose…"), *timezone_choices()],
        label="Time zone",
        help_text="The city whose clock the venue uses. All times of its events are shown on that clock.",
        error_messages={"invalid_choice": "“%(value)s” is not an IANA name such as Europe/Berlin."},
    )

    class Meta:
        model = Venue
        fields = ("name", "slug", "city", "address", "latitude", "longitude", "timezone")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not self.instance.pk:
            self.initial["timezone"] = ""
        elif self.instance.timezone:
            field = self.fields["timezone"]
            assert isinstance(field, forms.ChoiceField)
            field.choices = [("", "Choose…"), *timezone_choices(self.instance.timezone)]


@admin.register(Venue)
class VenueAdmin(DeclaredFiltersMixin, admin.ModelAdmin):
    form = VenueForm
    list_display = ("name", "city", "timezone")
    list_filter = ("timezone",)
    search_fields = ("name", "city", "address")
    prepopulated_fields = {"slug": ("name",)}


def read_plan(file: UploadedFile) -> tuple[bytes, Plan]:
    """Return the file's bytes and its plan; a file is read once. Raises PlanError, each time for the same file."""
    kept: dict[str, Any] = vars(file)
    if "plan" not in kept:
        limits = plan_limits()
        try:
            if file.size is None or file.size > limits.file_bytes_max:
                raise PlanError("", f"the file is larger than {limits.file_bytes_max / 1024 / 1024:.0f} MiB")
            data = file.read()
            kept["plan"] = data, parse_alone(data, limits)
        except PlanError as error:
            kept["plan"] = error
    if isinstance(kept["plan"], PlanError):
        raise kept["plan"]
    found: tuple[bytes, Plan] = kept["plan"]
    return found


class SeatingPlanForm(OwnedForm):
    """Uploads a plan as a file; an error names its place in the file."""

    name = forms.CharField(required=False, max_length=200, help_text="For files without a plan name, such as CSV.")
    file = forms.FileField(
        help_text="pretix seating-plan JSON, or CSV with a line for each seat: section,row,seat,category; optional "
        "columns: x, y, accessible, companion."
    )

    class Meta:
        model = SeatingPlan
        fields = ("organizer", "venue", "name", "file")

    plan: Plan
    bytes_read: bytes

    def clean_file(self) -> UploadedFile:
        file: UploadedFile = self.cleaned_data["file"]
        try:
            self.bytes_read, self.plan = read_plan(file)
        except PlanError as error:
            raise forms.ValidationError(f"{file.name}: {error}") from error
        return file


@admin.register(SeatingPlan)
class SeatingPlanAdmin(OrganizerScopedAdmin):
    organizer_path = "organizer"
    form = SeatingPlanForm
    list_display = ("name", "venue", "seat_count", "created_at")
    list_filter = ("venue", "created_at")
    search_fields = ("name", "venue__name", "digest")
    list_select_related = ("venue",)
    show_full_result_count = False

    def get_queryset(self, request: HttpRequest) -> QuerySet[SeatingPlan]:
        return super().get_queryset(request).defer("layout")

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def changeform_view(self, request: HttpRequest, object_id: str | None = None, *args: Any, **kwargs: Any) -> Any:
        """Read an uploaded plan before Django's view begins its transaction, which would be idle for seconds."""
        file = request.FILES.get("file") if object_id is None and self.has_add_permission(request) else None
        with keeping_turn(cast("int", request.user.pk)):
            if file is not None:
                with suppress(PlanError):  # The form shows it.
                    read_plan(file)
            return super().changeform_view(request, object_id, *args, **kwargs)

    def get_fields(self, request: HttpRequest, obj: SeatingPlan | None = None) -> tuple[str, ...]:
        if obj is None:
            return ("organizer", "venue", "name", "file")
        return ("organizer", "venue", "name", "seat_count", "digest", "created_at")

    def save_model(self, request: HttpRequest, obj: SeatingPlan, form: Any, change: bool) -> None:
        stored = store_plan(
            form.cleaned_data["organizer"], form.cleaned_data["venue"], form.plan, form.bytes_read,
            form.cleaned_data["name"],
        )  # fmt: skip
        # The admin goes on with `obj`, so copy the stored row into it, whether new or existing.
        for field in SeatingPlan._meta.concrete_fields:
            setattr(obj, field.attname, getattr(stored, field.attname))
        for note in form.plan.notes:
            messages.warning(request, note)


class DraftOnlyMixin:
    """Part of an event that may be edited until the event is published."""

    def has_change_permission(self, request: HttpRequest, obj: Event | None = None) -> bool:
        return obj is None or obj.status == Event.Status.DRAFT

    has_add_permission = has_delete_permission = has_change_permission


class OnSaleInline(EventValuesMixin, DraftOnlyMixin, admin.StackedInline):
    model = OnSale
    form = OnSaleForm
    formset = EventPartFormSet
    fieldsets = (
        (None, {"fields": ("opens_at", "closes_at")}),
        (
            "Limits",
            {
                "classes": ("collapse",),
                "fields": (
                    "hold_seconds", "payment_seconds", "grace_seconds", "seats_per_reservation_max", "per_buyer_max",
                    "oversell",
                )
            },
        ),
        (
            "Waiting room",
            {"classes": ("collapse",), "fields": ("room_rate_per_second", "room_active_max", "room_lobby_opens_at")},
        ),
        (
            "Presale",
            {"classes": ("collapse",), "fields": ("presale_condition", "presale_until", "sign_up_closes_at")},
        ),
        (
            "Fees and tax",
            {
                "classes": ("collapse",),
                "fields": (
                    "ticket_fee_minor", "ticket_fee_rate", "order_fee_minor", "waives_fees_when_free", "tax_rate",
                    "tax_included",
                )
            },
        ),
    )  # fmt: skip


def _is_long(model: type[Model], event: Event | None) -> bool:
    return (
        event is not None
        and model in (Category, Section)
        and model.objects.filter(event=event)[: INLINE_ROWS_MAX + 1].count() > INLINE_ROWS_MAX
    )


class CategoryInline(EventValuesMixin, DraftOnlyMixin, admin.TabularInline):
    model = Category
    form = CategoryForm
    formset = EventPartFormSet

    def get_extra(self, request: HttpRequest, obj: Event | None = None, **kwargs: Any) -> int:
        # The page of the prices has a field for each of them, however many.
        missing = 0 if obj is None else len(missing_tiers(obj))
        return missing if missing <= INLINE_ROWS_MAX else 0


class SectionInline(DraftOnlyMixin, admin.TabularInline):
    model = Section
    form = SectionForm
    fields = ("name", "slug", "capacity", "category", "position", "needs_access")
    extra = 0
    verbose_name_plural = "sections (of a draft: those without numbered seats; save their price category first)"
    prepopulated_fields = {"slug": ("name",)}

    def get_prepopulated_fields(self, request: HttpRequest, obj: Event | None = None) -> dict[str, Any]:
        return {"slug": ("name",)} if self.has_change_permission(request, obj) else {}

    def get_queryset(self, request: HttpRequest) -> QuerySet[Section]:
        return super().get_queryset(request).select_related("category")

    def formfield_for_foreignkey(self, db_field: ForeignKey, request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name == "category" and request.resolver_match is not None:
            # The page that adds an event has no event yet, and so no categories.
            event_id = int(unquote(request.resolver_match.kwargs.get("object_id") or "0"))
            kwargs["queryset"] = Category.objects.filter(event_id=event_id)
        return super().formfield_for_foreignkey(db_field, request, **kwargs)


@admin.register(Event)
class EventAdmin(EventPagesMixin, OrganizerScopedAdmin):
    organizer_path = "organizer"
    form = EventForm
    list_display = ("name", "dashboard", "venue", "starts_at", "status", "currency", "published_at")
    list_filter = ("status", "venue", "starts_at")
    search_fields = ("name", "slug", "venue__name", "venue__city")
    list_select_related = ("venue",)
    date_hierarchy = "starts_at"
    prepopulated_fields = {"slug": ("name",)}
    inlines = (OnSaleInline, CategoryInline, SectionInline)
    actions = ("publish",)
    fields = (
        "name", "slug", "organizer", "summary", "performers", "tags", "description", "language",
        "venue", "plan", "doors_at", "starts_at", "ends_at", "currency", "publishes_report",
        "status", "published_at", "page", "changes", "announcements", "stock", "cancellation",
    )  # fmt: skip
    # Set by services only.
    readonly_fields = ("status", "published_at", "page", "changes", "announcements", "stock", "cancellation")

    empty_value_display = "none"

    def get_fields(self, request: HttpRequest, obj: Event | None = None) -> tuple[str, ...]:
        """Leave out of a published event what its dashboard and its page of changes lead to."""
        if obj is None or obj.status == Event.Status.DRAFT:
            return self.fields
        left = {"slug", "changes", "announcements", "stock"}
        if obj.status != Event.Status.CANCELED:
            left.add("cancellation")
        return tuple(name for name in self.fields if name not in left)

    def get_inlines(self, request: HttpRequest, obj: Event | None) -> list[Any]:
        """Return the parts of the page. It takes seconds to render thousands of categories or sections, which the pages
        of the prices and of the stock show too."""
        parts = [part for part in super().get_inlines(request, obj) if not _is_long(part.model, obj)]
        return [*parts, *event_inlines()]

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> HttpResponse:
        event = kwargs.get("obj")
        if request.method == "GET" and any(_is_long(model, event) for model in (Category, Section)):
            note = f"Lists of more than {INLINE_ROWS_MAX} price categories or sections are left out here."
            messages.info(request, f"{note} The pages of the prices and of the stock have them.")
        return super().render_change_form(request, context, *args, **kwargs)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Event]:
        return super().get_queryset(request).defer("poster", "plan__layout")

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Event | None:
        """For a POST, lock the event and read it again. Otherwise a concurrent publication would be overwritten with
        the draft, and changed prices would bypass the services that record them."""
        found = super().get_object(request, object_id, from_field)
        if found is None or request.method != "POST":
            return found
        lock_event(found.pk)
        return super().get_object(request, object_id, from_field)

    def save_model(self, request: HttpRequest, obj: Event, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        if change and "organizer" in form.changed_data:
            for listener in registries.organizer_listeners():
                if ended := listener(obj.pk, f"staff:{request.user.pk}"):
                    messages.warning(request, ended)

    def get_readonly_fields(self, request: HttpRequest, obj: Event | None = None) -> tuple[str, ...]:
        # A member cannot give an event to another organizer, or take one.
        fixed = () if obj is None or permitted_organizers(request.user, CHANGE_EVENT) is None else ("organizer",)
        if obj is None or obj.status == Event.Status.DRAFT:
            return (*self.readonly_fields, *fixed)
        # Tickets were sold with these values.
        return (*self.readonly_fields, *fixed, "slug", "venue", "plan", "doors_at", "starts_at", "ends_at", "currency")

    def get_prepopulated_fields(self, request: HttpRequest, obj: Event | None = None) -> dict[str, Any]:
        return {"slug": ("name",)} if obj is None or obj.status == Event.Status.DRAFT else {}

    def has_delete_permission(self, request: HttpRequest, obj: Event | None = None) -> bool:
        return obj is not None and obj.status == Event.Status.DRAFT and super().has_delete_permission(request, obj)

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(buyer_price.buyer_price_view)
        price = path("buyer-price/", view, name="events_buyer_price")
        return [price, *preview.list_urls(self.admin_site), *super().get_urls()]

    @admin.display(description="dashboard")
    def dashboard(self, obj: Event) -> SafeString:
        url = reverse("admin:event_dashboard", args=[obj.pk])
        return format_html('<a href="{}">Dashboard<span class="visually-hidden"> of {}</span></a>', url, obj.name)

    @admin.display(description="page")
    def page(self, obj: Event) -> SafeString | str:
        if obj.status == Event.Status.DRAFT:
            return "after publication"
        return format_html('<a href="{0}">{0}</a>', reverse("events:event", args=[obj.slug]))

    @admin.display(description="changes")
    def changes(self, obj: Event) -> SafeString | str:
        if obj.status == Event.Status.DRAFT:
            return "after publication; until then below"
        url = reverse("admin:events_changes", args=[obj.pk])
        return format_html('<a href="{}">Postpone; change on-sale, limits, fees and tax</a>', url)

    @admin.display(description="announcements")
    def announcements(self, obj: Event) -> SafeString | str:
        if obj.status == Event.Status.DRAFT:
            return "after publication"
        url = reverse("admin:events_announcements", args=[obj.pk])
        return format_html('<a href="{}">Post, correct and retract announcements</a>', url)

    @admin.display(description="prices and stock")
    def stock(self, obj: Event) -> SafeString | str:
        if obj.status == Event.Status.DRAFT:
            return "after publication; until then below"
        # The page belongs to an app above, so only its URL name is used here.
        url = reverse("admin:reservations_stock", args=[obj.pk])
        return format_html(
            '<a href="{}">Change prices, block seats, resize general admission, require access codes</a>', url
        )

    @admin.display(description="cancellation")
    def cancellation(self, obj: Event) -> SafeString | str:
        if obj.status == Event.Status.DRAFT:
            return "after publication"
        if obj.status == Event.Status.CANCELED:
            url = reverse("admin:orders_eventcancellation_change", args=[obj.pk])
            return format_html('<a href="{}">Refund progress</a>', url)
        url = reverse("admin:orders_eventcancellation_add")
        return format_html('<a href="{}?event={}">Cancel the event and refund all orders</a>', url, obj.pk)

    @admin.action(description="Publish selected drafts", permissions=["change"])
    def publish(self, request: HttpRequest, queryset: QuerySet[Event]) -> None:
        drafts = {
            event_id: (name, count_draft_seats(event_id)) for event_id, name in queryset.values_list("pk", "name")
        }
        seats = sum(count for _, count in drafts.values())
        if len(drafts) > 1 and seats > LARGE_SEATS:
            problem = f"These drafts have {seats:,} seats. Publish at most {LARGE_SEATS:,} at once, or one draft."
            self.message_user(request, problem, messages.ERROR)
            return
        for event_id, (name, count) in drafts.items():
            try:
                with reading_alone(cast("int", request.user.pk), count):
                    published = publish_event(event_id)
            except (EventRefused, problems.Busy) as error:
                self.message_user(request, f"{name}: {error}", messages.ERROR)
            else:
                result = "published" if published else "already published; nothing changed"
                self.message_user(request, f"{name}: {result}", messages.SUCCESS)


@admin.register(Section)
class SectionAdmin(OrganizerScopedAdmin, ReadOnlyAdmin):
    list_display = ("name", "slug", "event", "kind", "capacity", "with_code")
    list_filter = ("kind", "event", ("needs_access_since", admin.EmptyFieldListFilter))
    search_fields = ("name", "slug", "event__name")
    list_select_related = ("event",)

    @admin.display(description="access code", boolean=True, ordering="needs_access_since")
    def with_code(self, section: Section) -> bool:
        return section.needs_access


@admin.register(Seat)
class SeatAdmin(OrganizerScopedAdmin, ReadOnlyAdmin):
    list_display = ("guid", "event", "section", "row", "number", "category", "accessible", "companion")
    list_filter = ("event", "accessible", "companion")
    search_fields = ("=guid",)
    search_help_text = "The exact id of a seat."
    list_select_related = ("event", "section", "category")
    # As their index. Django orders by the section's own order instead, and would sort all seats by any column.
    ordering = ("section_id", "row_index", "place_index")
    sortable_by = ()
