"""The catalog: venues, their seating plans, events, and their sections, seats and prices.

Availability is not stored here; the reservations app has it. Seat rows are written once, when the event is published.
After publication only prices, the categories of seats and the capacities of general admission change, through
changes.py. A section's capacity is always the one shown to the public.
"""

from dataclasses import fields
from datetime import datetime, timedelta

from django.db import models
from django.db.models import F, Q

from apps.events.models.organizers import SHORT_NAME_HELP, Organizer
from apps.events.pricing import FEE_MINOR_MAX, RATE_MAX, PricePolicy

DEADLINE_SECONDS_MIN = 30
HOLD_SECONDS_MAX = 4 * 3_600
PAYMENT_SECONDS_MAX = 3_600
SUMMARY_CHARACTERS_MAX = 300


class Language(models.TextChoices):
    """Languages of events' texts whose forms of words the search knows: those of the Snowball stemmers."""

    ARABIC = "ar", "Arabic"
    DANISH = "da", "Danish"
    DUTCH = "nl", "Dutch"
    ENGLISH = "en", "English"
    FINNISH = "fi", "Finnish"
    FRENCH = "fr", "French"
    GERMAN = "de", "German"
    GREEK = "el", "Greek"
    HUNGARIAN = "hu", "Hungarian"
    ITALIAN = "it", "Italian"
    NORWEGIAN = "no", "Norwegian"
    PORTUGUESE = "pt", "Portuguese"
    ROMANIAN = "ro", "Romanian"
    RUSSIAN = "ru", "Russian"
    SPANISH = "es", "Spanish"
    SWEDISH = "sv", "Swedish"
    TURKISH = "tr", "Turkish"
    OTHER = "xx", "another language"


def lines_of(text: str) -> tuple[str, ...]:
    """Return the lines that are not empty, each once."""
    return tuple(dict.fromkeys(line.strip() for line in text.splitlines() if line.strip()))


def tags_of(text: str) -> tuple[str, ...]:
    """Return the parts between commas that are not empty, each once."""
    return tuple(dict.fromkeys(tag.strip() for tag in text.split(",") if tag.strip()))


class Venue(models.Model):
    slug = models.SlugField("short name", max_length=80, unique=True, help_text=SHORT_NAME_HELP)
    name = models.CharField(max_length=200, unique=True)
    city = models.CharField(max_length=120, blank=True)
    address = models.CharField(
        max_length=300, blank=True, help_text="Street and number, as on the event's page and on a map."
    )
    latitude = models.FloatField(
        null=True, blank=True, help_text="In degrees, as in 51.5079; empty: the map searches for the address."
    )
    longitude = models.FloatField(null=True, blank=True, help_text="In degrees, west is negative, as in -0.0877.")
    timezone = models.CharField(max_length=64, default="UTC", help_text="IANA name; pages show times in this zone.")

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(
                condition=Q(latitude__isnull=True, longitude__isnull=True)
                | Q(latitude__gte=-90, latitude__lte=90, longitude__gte=-180, longitude__lte=180),
                name="venue_coordinates_sane",
                violation_error_message="Give both coordinates, in degrees, or neither.",
            )
        ]

    def __str__(self) -> str:
        return self.name


class SeatingPlan(models.Model):
    """An imported plan: the normalized layout, never edited in place. Importing the same file again finds this row."""

    organizer = models.ForeignKey(Organizer, on_delete=models.PROTECT, related_name="plans")
    venue = models.ForeignKey(Venue, on_delete=models.PROTECT, related_name="plans")
    name = models.CharField(max_length=200)
    digest = models.CharField(max_length=64, help_text="SHA-256 of the imported file.")
    seat_count = models.PositiveIntegerField()
    layout = models.JSONField(help_text="Normalized layout; see apps.events.plans.")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["venue", "name"]
        constraints = [
            models.UniqueConstraint(fields=["organizer", "venue", "digest"], name="seating_plan_once_per_venue")
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.seat_count} seats)"


class Event(models.Model):
    """A performance at a venue on a date."""

    class Status(models.TextChoices):
        DRAFT = "draft", "draft"  # → published
        PUBLISHED = "published", "published"  # → canceled
        CANCELED = "canceled", "canceled"

    slug = models.SlugField(
        "short name", max_length=80, unique=True, help_text="The end of its page's address. Made from the name."
    )
    name = models.CharField(max_length=200)
    summary = models.CharField(
        "short description",
        max_length=SUMMARY_CHARACTERS_MAX,
        blank=True,
        db_default="",
        help_text="One sentence, for the catalog and its search.",
    )
    description = models.TextField(blank=True)
    performers = models.TextField(blank=True, db_default="", help_text="One a line, as in Arnold Schwarzenegger.")
    tags = models.CharField(
        max_length=300, blank=True, db_default="", help_text="Separated by commas, as in jazz, open air, family."
    )
    language = models.CharField(
        "language of its texts",
        max_length=2,
        choices=Language.choices,
        default=Language.ENGLISH,
        db_default=Language.ENGLISH,
        help_text="The search knows the forms of words by it.",
    )
    organizer = models.ForeignKey(Organizer, on_delete=models.PROTECT, related_name="events")
    venue = models.ForeignKey(Venue, on_delete=models.PROTECT, related_name="events")
    plan = models.ForeignKey(SeatingPlan, on_delete=models.PROTECT, null=True, blank=True, related_name="events")
    doors_at = models.DateTimeField(
        "doors open at", null=True, blank=True, help_text="When people are let in; empty: not announced."
    )
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField(
        null=True, blank=True, help_text="The expected end, for calendars; empty: not announced."
    )
    currency = models.CharField(max_length=3, help_text="ISO 4217 code.")
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.DRAFT)
    poster = models.TextField(blank=True, help_text="SVG source, generated by code.")
    publishes_report = models.BooleanField(
        "report after the sale",
        default=False,
        db_default=False,
        help_text="Allows a public report once the sale is over: figures, no names. Operators publish it.",
    )
    created_at = models.DateTimeField(auto_now_add=True)
    published_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["starts_at", "slug"]
        # The catalog reads a page of it in this order.
        indexes = [models.Index(fields=["starts_at", "slug"], name="event_start")]
        constraints = [
            models.CheckConstraint(condition=Q(currency__regex=r"^[A-Z]{3}$"), name="event_currency_is_iso"),
            models.CheckConstraint(
                condition=Q(status="draft") | Q(published_at__isnull=False), name="event_published_has_time"
            ),
            models.CheckConstraint(
                condition=Q(doors_at__isnull=True) | Q(doors_at__lte=F("starts_at")),
                name="event_doors_open_by_start",
                violation_error_message="Doors open at the start of the event or before it.",
            ),
            models.CheckConstraint(
                condition=Q(ends_at__isnull=True) | Q(ends_at__gt=F("starts_at")),
                name="event_ends_after_start",
                violation_error_message="The event ends after it starts.",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def performer_names(self) -> tuple[str, ...]:
        return lines_of(self.performers)

    @property
    def tag_names(self) -> tuple[str, ...]:
        return tags_of(self.tags)

    def opening_at_once(self) -> datetime:
        """Return the time that a draft's on-sale has for "as soon as it is published": that of its creation, and never
        after the start, however long the draft waits for its publication."""
        return min(self.created_at, self.starts_at - timedelta(seconds=1))

    def opens_at_once(self, opens_at: datetime) -> bool:
        """Return whether sales that open at this time open as soon as the draft is published, because no other time was
        asked for."""
        return opens_at <= self.created_at


class OnSale(models.Model):
    """The selling period of an event and its policy. "On sale", "closed" and "sold out" are derived, never stored."""

    class Oversell(models.TextChoices):
        """How an oversell, which should be impossible, is compensated."""

        CANCEL_NEWEST = "cancel_newest", "cancel the newest reservations"
        HOUSE_SEATS = "house_seats", "give out house seats"

    class Presale(models.TextChoices):
        """Which visitors may join and hold during the presale."""

        CODE = "code", "visitors with an access code"
        ACCOUNT = "account", "accounts with a confirmed email address"
        SIGN_UP = "sign_up", "accounts that have signed up for the draw of the lobby"

    event = models.OneToOneField(Event, on_delete=models.CASCADE, primary_key=True, related_name="on_sale")
    opens_at = models.DateTimeField("sales open at")
    closes_at = models.DateTimeField("sales end at", null=True, blank=True)
    hold_seconds = models.PositiveIntegerField(
        "time to pay", default=600, help_text="How long reserved tickets wait for their payment."
    )
    payment_seconds = models.PositiveIntegerField(
        "time for a payment", default=180, help_text="The longest time that a payment may take."
    )
    grace_seconds = models.PositiveSmallIntegerField(
        "grace for late payments, seconds",
        default=60,
        help_text="How long after the deadline a payment still counts, if the seats are still reserved.",
    )
    seats_per_reservation_max = models.PositiveSmallIntegerField("tickets at a time, at most", default=8)
    per_buyer_max = models.PositiveIntegerField(
        "tickets per buyer, at most",
        null=True,
        blank=True,
        help_text="Tickets that one buyer may reserve and buy for this event; empty: no limit.",
    )
    oversell = models.CharField(
        "if oversold",
        max_length=16,
        choices=Oversell.choices,
        default=Oversell.CANCEL_NEWEST,
        help_text="How buyers are compensated if more seats are ever sold than exist.",
    )
    room_rate_per_second = models.PositiveIntegerField(
        "waiting room: rate",
        null=True,
        blank=True,
        help_text="Visitors admitted per second. A waiting room needs this and the cap; both empty: it is off.",
    )
    room_active_max = models.PositiveIntegerField(
        "waiting room: cap", null=True, blank=True, help_text="Visitors who may shop at the same time."
    )
    room_lobby_opens_at = models.DateTimeField(
        "waiting room: lobby opens at",
        null=True,
        blank=True,
        help_text="Visitors gather from then until sales open, and a draw numbers them; empty: no lobby.",
    )

    presale_condition = models.CharField(
        max_length=10, choices=Presale.choices, blank=True, help_text="Who may buy during the presale; empty: none."
    )
    presale_until = models.DateTimeField(
        "presale ends at", null=True, blank=True, help_text="The presale begins when sales open, and ends at this time."
    )

    sign_up_closes_at = models.DateTimeField(
        "sign-up closes at",
        null=True,
        blank=True,
        help_text="A presale by sign-up: sign-up opens with the lobby and closes at this time.",
    )

    # In the order of PricePolicy's fields.
    ticket_fee_minor = models.PositiveBigIntegerField(
        "fee per ticket", default=0, help_text="On top of each ticket's price."
    )
    ticket_fee_rate = models.PositiveIntegerField(
        "fee per ticket, share", default=0, help_text="Percentage of each ticket's price, in addition to the fee above."
    )
    order_fee_minor = models.PositiveBigIntegerField("fee per order", default=0, help_text="Once per order.")
    waives_fees_when_free = models.BooleanField(
        "no fees on free tickets",
        default=True,
        help_text="Tickets with a price of 0 bear no fee, and neither does an order of only such tickets.",
    )
    tax_rate = models.PositiveIntegerField(default=0, help_text="On prices and fees; a category may have its own.")
    tax_included = models.BooleanField(
        "prices and fees include the tax", default=True, help_text="If not, the tax is added to them."
    )

    terms_since = models.DateTimeField(
        null=True,
        blank=True,
        editable=False,
        help_text="Since when the present limits and fees hold for new reservations; empty: since the publication.",
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
                condition=Q(hold_seconds__gte=DEADLINE_SECONDS_MIN, hold_seconds__lte=HOLD_SECONDS_MAX),
                name="on_sale_hold_seconds_sane",
                violation_error_message="The time to pay is between 30 seconds and 4 hours.",
            ),
            models.CheckConstraint(
                condition=Q(payment_seconds__gte=DEADLINE_SECONDS_MIN, payment_seconds__lte=PAYMENT_SECONDS_MAX),
                name="on_sale_payment_seconds_sane",
                violation_error_message="The time for a payment is between 30 seconds and 1 hour.",
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
                # Without the checks for null, a rate without a cap would pass: a comparison with null is no violation.
                | Q(
                    room_rate_per_second__isnull=False,
                    room_active_max__isnull=False,
                    room_rate_per_second__gte=1,
                    room_active_max__gte=1,
                ),
                name="on_sale_room_has_rate_and_cap",
                violation_error_message="A waiting room needs both a rate and a cap, of at least 1.",
            ),
            models.CheckConstraint(
                condition=Q(room_lobby_opens_at__isnull=True)
                | Q(room_rate_per_second__isnull=False, room_lobby_opens_at__lt=F("opens_at")),
                name="on_sale_lobby_before_opening",
                violation_error_message="A lobby needs a waiting room and must open before the on-sale.",
            ),
            models.CheckConstraint(
                condition=Q(presale_condition="", presale_until__isnull=True)
                | (~Q(presale_condition="") & Q(presale_until__isnull=False, presale_until__gt=F("opens_at"))),
                name="on_sale_presale_has_condition_and_end",
            ),
            models.CheckConstraint(
                condition=(~Q(presale_condition="sign_up") & Q(sign_up_closes_at__isnull=True))
                | Q(
                    presale_condition="sign_up",
                    room_lobby_opens_at__isnull=False,
                    sign_up_closes_at__gt=F("room_lobby_opens_at"),
                    sign_up_closes_at__lte=F("opens_at"),
                ),
                name="on_sale_sign_up_within_lobby",
            ),
        ]

    def __str__(self) -> str:
        return f"on-sale of {self.event}"

    @property
    def price_policy(self) -> PricePolicy:
        return PricePolicy(**{field.name: getattr(self, field.name) for field in fields(PricePolicy)})


class Category(models.Model):
    """A price category. A section shows the prices of the categories of its seats."""

    event = models.ForeignKey(Event, on_delete=models.CASCADE, related_name="categories")
    key = models.CharField(
        "name in the plan", max_length=80, help_text="The category's name in the seating plan, or the section's."
    )
    name = models.CharField(max_length=120)
    color = models.CharField(max_length=9, default="#6b7280", help_text="#rrggbb")
    price_minor = models.PositiveBigIntegerField("price", help_text="Without fees.")
    tax_rate = models.PositiveIntegerField(null=True, blank=True, help_text="A percentage. Empty: the event's rate.")
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
    slug = models.SlugField("short name", max_length=80, help_text=SHORT_NAME_HELP)
    name = models.CharField(max_length=120)
    kind = models.CharField(max_length=20, choices=Kind.choices)
    capacity = models.PositiveIntegerField(
        help_text="Capacity shown to the public. Resize a published general admission section on its stock page. "
        "The inventory has how many are available."
    )
    category = models.ForeignKey(
        Category, on_delete=models.PROTECT, null=True, blank=True, help_text="General admission only: its price."
    )
    categories = models.ManyToManyField(
        Category, related_name="+", blank=True, help_text="Categories of its seats; written at publication."
    )
    position = models.PositiveSmallIntegerField(default=0)
    needs_access_since = models.DateTimeField(
        "access code required since",
        null=True,
        blank=True,
        help_text="Since when holds in this section need an access code; empty: they need none. Earlier holds stay "
        "valid.",
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
    """A numbered seat. Written at publication in one bulk load."""

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
        help_text="Position along the row; consecutive numbers are neighbors, an aisle skips one."
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
