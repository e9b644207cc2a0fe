"""What exists: venues, their seating plans, the events held there and what is offered at which price.

Nothing here says what is free; that is the reservations app's. A seat row is written once, when its event is
published; of a published event only prices, the categories of seats and the capacities of general admission change,
by the services in changes.py. A section's capacity is always what the public is told now.
"""

from dataclasses import fields

from django.db import models
from django.db.models import F, Q

from apps.events.pricing import FEE_MINOR_MAX, RATE_MAX, PricePolicy


class Venue(models.Model):
    slug = models.SlugField(max_length=80, unique=True)
    name = models.CharField(max_length=200, unique=True)
    city = models.CharField(max_length=120, blank=True)
    address = models.CharField(max_length=300, blank=True)
    timezone = models.CharField(max_length=64, default="UTC", help_text="IANA name; times on pages are shown in it.")

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class SeatingPlan(models.Model):
    """A plan as it was imported: the normalised layout, never edited in place. Same file, same digest, same row."""

    venue = models.ForeignKey(Venue, on_delete=models.PROTECT, related_name="plans")
    name = models.CharField(max_length=200)
    digest = models.CharField(max_length=64, help_text="SHA-256 of the imported file.")
    seat_count = models.PositiveIntegerField()
    layout = models.JSONField(help_text="Normalised layout; see apps.events.plans.")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["venue", "name"]
        constraints = [models.UniqueConstraint(fields=["venue", "digest"], name="seating_plan_once_per_venue")]

    def __str__(self) -> str:
        return f"{self.name} ({self.seat_count} seats)"


class Event(models.Model):
    """One performance at a venue on a date."""

    class Status(models.TextChoices):
        DRAFT = "draft", "draft"  # → published
        PUBLISHED = "published", "published"  # → canceled
        CANCELED = "canceled", "canceled"

    slug = models.SlugField(max_length=80, unique=True)
    name = models.CharField(max_length=200)
    description = models.TextField(blank=True)
    venue = models.ForeignKey(Venue, on_delete=models.PROTECT, related_name="events")
    plan = models.ForeignKey(SeatingPlan, on_delete=models.PROTECT, null=True, blank=True, related_name="events")
    starts_at = models.DateTimeField()
    currency = models.CharField(max_length=3, help_text="ISO 4217 code.")
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.DRAFT)
    poster = models.TextField(blank=True, help_text="SVG source, drawn by code.")
    created_at = models.DateTimeField(auto_now_add=True)
    published_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["starts_at", "slug"]
        constraints = [
            models.CheckConstraint(condition=Q(currency__regex=r"^[A-Z]{3}$"), name="event_currency_is_iso"),
            models.CheckConstraint(
                condition=Q(status="draft") | Q(published_at__isnull=False), name="event_published_has_time"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class OnSale(models.Model):
    """The selling period of an event and its policy. "On sale", "closed", "sold out" are derived, never stored."""

    class Oversell(models.TextChoices):
        """How an oversell, which must be impossible, would be made up for."""

        CANCEL_NEWEST = "cancel_newest", "cancel the newest reservations"
        HOUSE_SEATS = "house_seats", "give out what the house keeps"

    event = models.OneToOneField(Event, on_delete=models.CASCADE, primary_key=True, related_name="on_sale")
    opens_at = models.DateTimeField()
    closes_at = models.DateTimeField(null=True, blank=True)
    hold_minutes = models.PositiveSmallIntegerField(default=10, help_text="Time to pay after a hold.")
    payment_minutes = models.PositiveSmallIntegerField(default=3, help_text="Longest time a payment may take.")
    grace_seconds = models.PositiveSmallIntegerField(
        default=60, help_text="How late a payment may have occurred and still count, if its seats are still its own."
    )
    seats_per_reservation_max = models.PositiveSmallIntegerField(default=8)
    per_buyer_max = models.PositiveIntegerField(
        null=True, blank=True, help_text="Seats one buyer may hold or have bought for this event; empty: no cap."
    )
    oversell = models.CharField(
        max_length=16,
        choices=Oversell.choices,
        default=Oversell.CANCEL_NEWEST,
        help_text="Should more ever have been sold than there is: who is made whole, and how.",
    )
    room_rate_per_second = models.PositiveIntegerField(
        "waiting room: rate",
        null=True,
        blank=True,
        help_text="People let in per second. With its cap the event has a waiting room; empty: it has none.",
    )
    room_active_max = models.PositiveIntegerField(
        "waiting room: active max", null=True, blank=True, help_text="People shopping at once."
    )
    room_lobby_opens_at = models.DateTimeField(
        "waiting room: lobby opens at",
        null=True,
        blank=True,
        help_text="From then until the on-sale opens people gather, and a draw numbers them; empty: no lobby.",
    )

    # The order of these is that of PricePolicy's fields, which is made of them.
    ticket_fee_minor = models.PositiveBigIntegerField(
        "fee per ticket", default=0, help_text="In the smallest unit of the currency, on top of each ticket's price."
    )
    ticket_fee_rate = models.PositiveIntegerField(
        "fee per ticket, share", default=0, help_text="Basis points of the price: 500 is 5 percent."
    )
    order_fee_minor = models.PositiveBigIntegerField(
        "fee per order", default=0, help_text="In the smallest unit of the currency, once per order."
    )
    waives_fees_when_free = models.BooleanField(
        default=True, help_text="A ticket that costs nothing bears no fee, and an order of such tickets none either."
    )
    tax_rate = models.PositiveIntegerField(
        default=0, help_text="Basis points: 1,900 is 19 percent. On prices and fees alike; a category may have another."
    )
    tax_included = models.BooleanField(
        default=True, help_text="Prices and fees have the tax in them. If not, it is added to them."
    )

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(ticket_fee_minor__lte=FEE_MINOR_MAX, order_fee_minor__lte=FEE_MINOR_MAX),
                name="on_sale_fees_sane",
            ),
            models.CheckConstraint(
                condition=Q(ticket_fee_rate__lte=RATE_MAX, tax_rate__lte=RATE_MAX), name="on_sale_rates_sane"
            ),
            models.CheckConstraint(
                condition=Q(closes_at__isnull=True) | Q(closes_at__gt=F("opens_at")),
                name="on_sale_closes_after_opening",
            ),
            models.CheckConstraint(
                condition=Q(hold_minutes__gte=1, hold_minutes__lte=240), name="on_sale_hold_minutes_sane"
            ),
            models.CheckConstraint(
                condition=Q(payment_minutes__gte=1, payment_minutes__lte=60), name="on_sale_payment_minutes_sane"
            ),
            models.CheckConstraint(condition=Q(grace_seconds__lte=3600), name="on_sale_grace_seconds_sane"),
            models.CheckConstraint(
                condition=Q(seats_per_reservation_max__gte=1, seats_per_reservation_max__lte=100),
                name="on_sale_seats_per_reservation_sane",
            ),
            models.CheckConstraint(
                condition=Q(per_buyer_max__isnull=True) | Q(per_buyer_max__gte=1), name="on_sale_per_buyer_positive"
            ),
            models.CheckConstraint(
                condition=Q(room_rate_per_second__isnull=True, room_active_max__isnull=True)
                | Q(room_rate_per_second__gte=1, room_active_max__gte=1),
                name="on_sale_room_has_rate_and_cap",
            ),
            models.CheckConstraint(
                condition=Q(room_lobby_opens_at__isnull=True)
                | Q(room_rate_per_second__isnull=False, room_lobby_opens_at__lt=F("opens_at")),
                name="on_sale_lobby_before_opening",
                violation_error_message="A lobby belongs to a waiting room, and opens before the on-sale does.",
            ),
        ]

    def __str__(self) -> str:
        return f"on-sale of {self.event}"

    @property
    def price_policy(self) -> PricePolicy:
        return PricePolicy(**{field.name: getattr(self, field.name) for field in fields(PricePolicy)})


class Category(models.Model):
    """A price tier. Prices belong to categories; a section shows the prices of the categories found in it."""

    event = models.ForeignKey(Event, on_delete=models.CASCADE, related_name="categories")
    key = models.CharField(max_length=80, help_text="The category's name in the seating plan, or the section's.")
    name = models.CharField(max_length=120)
    color = models.CharField(max_length=9, default="#6b7280", help_text="#rrggbb")
    price_minor = models.PositiveBigIntegerField(help_text="In the smallest unit of the event's currency.")
    tax_rate = models.PositiveIntegerField(
        null=True, blank=True, help_text="Basis points: 700 is 7 percent. Empty: the event's."
    )
    position = models.PositiveSmallIntegerField(default=0)

    class Meta:
        ordering = ["position", "id"]
        verbose_name_plural = "categories"
        constraints = [
            models.UniqueConstraint(fields=["event", "key"], name="category_key_once_per_event"),
            models.CheckConstraint(condition=Q(price_minor__lte=10**12), name="category_price_sane"),
            models.CheckConstraint(condition=Q(tax_rate__lte=RATE_MAX), name="category_tax_rate_sane"),
        ]

    def __str__(self) -> str:
        return self.name


class Section(models.Model):
    class Kind(models.TextChoices):
        RESERVED = "reserved", "reserved seating"
        GENERAL_ADMISSION = "general_admission", "general admission"

    event = models.ForeignKey(Event, on_delete=models.CASCADE, related_name="sections")
    slug = models.SlugField(max_length=80)
    name = models.CharField(max_length=120)
    kind = models.CharField(max_length=20, choices=Kind.choices)
    capacity = models.PositiveIntegerField(
        help_text="Places in all, as the public is told. A published section of general admission is resized at the "
        "stock desk. How many are free now, the inventory says."
    )
    category = models.ForeignKey(
        Category, on_delete=models.PROTECT, null=True, blank=True, help_text="General admission only: its one price."
    )
    categories = models.ManyToManyField(
        Category, related_name="+", blank=True, help_text="Whose prices are found in it; written at publication."
    )
    position = models.PositiveSmallIntegerField(default=0)
    needs_access_since = models.DateTimeField(
        "only with an access code since",
        null=True,
        blank=True,
        help_text="Since when nobody holds here without an access code; empty: everybody may. What was held before "
        "stands.",
    )

    class Meta:
        ordering = ["position", "id"]
        constraints = [
            models.UniqueConstraint(fields=["event", "slug"], name="section_slug_once_per_event"),
            models.CheckConstraint(
                condition=Q(kind="reserved", category__isnull=True)
                | Q(kind="general_admission", category__isnull=False),
                name="section_general_admission_has_category",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def needs_access(self) -> bool:
        return self.needs_access_since is not None


class Seat(models.Model):
    """One place. Written at publication in one bulk load."""

    event = models.ForeignKey(Event, on_delete=models.CASCADE, related_name="seats")
    section = models.ForeignKey(Section, on_delete=models.CASCADE, related_name="seats")
    category = models.ForeignKey(Category, on_delete=models.PROTECT, related_name="seats")
    guid = models.CharField(max_length=120, help_text="`seat_id` of the public API: the plan's seat_guid.")
    row = models.CharField(max_length=40)
    number = models.CharField(max_length=40)
    x = models.FloatField()
    y = models.FloatField()
    row_index = models.PositiveIntegerField(help_text="Order of the row within its section, front first.")
    place_index = models.PositiveIntegerField(
        help_text="Place along the row; consecutive numbers are neighbours, an aisle skips one."
    )
    rank = models.PositiveIntegerField(help_text="Within the section; 1 is the best.")
    accessible = models.BooleanField(default=False)
    companion = models.BooleanField(default=False)

    class Meta:
        ordering = ["section", "row_index", "place_index"]
        constraints = [
            models.UniqueConstraint(fields=["event", "guid"], name="seat_guid_once_per_event"),
            models.UniqueConstraint(fields=["section", "row_index", "place_index"], name="seat_place_once_per_section"),
        ]

    def __str__(self) -> str:
        return self.guid
