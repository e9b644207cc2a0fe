"""The inventory of every section, and its reservations.

These constraints hold even if the code above is wrong: a seat is not held twice, a count does not go below zero,
and an ended reservation holds nothing.
"""

import uuid

from django.conf import settings
from django.contrib.postgres.indexes import BrinIndex
from django.db import models
from django.db.models import F, Q

from apps.kernel.codes.abstract_code import AbstractCode, code_constraints
from apps.kernel.db.transaction_ids import CurrentTransactionId


class BlockedFor(models.TextChoices):
    """Why stock is blocked. House seats may be put on sale again, or used to compensate an oversell."""

    HOUSE = "house", "house seats"
    OUT_OF_USE = "out_of_use", "out of use"


class SeatInventory(models.Model):
    """The state of one seat. The seat's location is copied here so that choosing reads one narrow table."""

    class Status(models.IntegerChoices):
        AVAILABLE = 0, "available"
        HELD = 1, "held"
        SOLD = 2, "sold"
        BLOCKED = 3, "blocked"

    seat = models.OneToOneField("events.Seat", on_delete=models.PROTECT, primary_key=True, related_name="inventory")
    event = models.ForeignKey("events.Event", on_delete=models.PROTECT, related_name="+", db_index=False)
    section = models.ForeignKey("events.Section", on_delete=models.PROTECT, related_name="+", db_index=False)
    category = models.ForeignKey("events.Category", on_delete=models.PROTECT, related_name="+", db_index=False)
    row_index = models.PositiveIntegerField()
    place_index = models.PositiveIntegerField()
    rank = models.PositiveIntegerField()
    accessible = models.BooleanField()
    companion = models.BooleanField()
    status = models.PositiveSmallIntegerField(choices=Status.choices, default=Status.AVAILABLE)
    reservation_id = models.UUIDField(
        null=True, blank=True, help_text="The live reservation that holds it, or the confirmed one that bought it."
    )
    blocked_for = models.CharField(max_length=12, choices=BlockedFor.choices, blank=True, default="", db_default="")

    class Meta:
        verbose_name_plural = "seat inventory"
        constraints = [
            models.CheckConstraint(
                condition=Q(status__in=[1, 2], reservation_id__isnull=False)
                | Q(status__in=[0, 3], reservation_id__isnull=True),
                name="seat_inventory_held_has_reservation",
            ),
            models.CheckConstraint(
                condition=Q(status=3, blocked_for__in=BlockedFor.values) | (~Q(status=3) & Q(blocked_for="")),
                name="seat_inventory_blocked_says_why",
            ),
        ]
        indexes = [
            # Choosing the best seats reads the front of this index, however much is sold.
            models.Index(fields=["section", "rank"], condition=Q(status=0), name="seat_inventory_free_by_rank"),
            models.Index(
                fields=["reservation_id"], condition=Q(reservation_id__isnull=False), name="seat_inventory_reservation"
            ),
            models.Index(fields=["section", "status"], name="seat_inventory_counts"),
            models.Index(fields=["event", "status"], name="seat_inventory_event"),
        ]

    def __str__(self) -> str:
        return f"seat {self.pk}: {self.get_status_display()}"


class GeneralAdmissionInventory(models.Model):
    """The counts of a general-admission section, one row each. `taken` counts held and sold tickets together, so that
    confirming a sale does not update this contended row; the lines distinguish them."""

    section = models.OneToOneField("events.Section", on_delete=models.PROTECT, primary_key=True, related_name="+")
    event = models.ForeignKey("events.Event", on_delete=models.PROTECT, related_name="+")
    capacity = models.PositiveIntegerField()
    blocked = models.PositiveIntegerField(default=0)
    taken = models.PositiveIntegerField(default=0)
    house = models.PositiveIntegerField(
        default=0, db_default=0, help_text="The blocked tickets that are house seats; the others are out of use."
    )

    class Meta:
        verbose_name_plural = "general admission inventory"
        constraints = [
            models.CheckConstraint(
                condition=Q(capacity__gte=F("taken") + F("blocked")), name="general_admission_never_oversold"
            ),
            models.CheckConstraint(condition=Q(taken__gte=0, blocked__gte=0), name="general_admission_never_negative"),
            models.CheckConstraint(condition=Q(house__lte=F("blocked")), name="general_admission_house_is_blocked"),
        ]

    def __str__(self) -> str:
        return f"section {self.pk}: {self.capacity - self.blocked - self.taken} of {self.capacity}"


class AccessCode(AbstractCode):
    """A code that allows holds in restricted sections. Its uses are the live and confirmed reservations with it."""

    sections = models.ManyToManyField(
        "events.Section",
        blank=True,
        related_name="+",
        help_text="The sections that it opens; empty: all sections of the event.",
    )
    uses_max = models.PositiveIntegerField(
        "uses in all", null=True, blank=True, help_text="Concurrent reservations with it; empty: no limit."
    )
    uses_per_buyer_max = models.PositiveIntegerField(
        "uses per buyer", null=True, blank=True, help_text="Per account or browser, as for purchase caps."
    )

    class Meta(AbstractCode.Meta):
        constraints = code_constraints("access_code")


class Reservation(models.Model):
    """One buyer's claim on seats and tickets, with one deadline at a time."""

    class Status(models.TextChoices):
        PENDING_PAYMENT = "pending_payment", "pending payment"  # → paying, canceled, expired
        PAYING = "paying", "paying"  # → confirmed, canceled, expired
        CONFIRMED = "confirmed", "confirmed"  # → confirmed (some tickets returned), canceled (all of them)
        CANCELED = "canceled", "canceled"
        EXPIRED = "expired", "expired"  # → confirmed, if a payment occurred in time and its seats could be taken again

    LIVE = (Status.PENDING_PAYMENT, Status.PAYING)
    LIVE_OR_CONFIRMED = (*LIVE, Status.CONFIRMED)

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    # No foreign keys in the database: the hold has the entry locked, which proves that it and its event exist. The
    # checks would lock two more rows per hold, and all holds share the event's. A trigger refuses to delete an entry
    # with reservations, and the auditor finds orphans.
    event = models.ForeignKey(
        "events.Event", on_delete=models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    entry = models.ForeignKey("queue.QueueEntry", on_delete=models.PROTECT, related_name="+", db_constraint=False)
    account = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+", db_index=False
    )
    buyer = models.CharField(max_length=80, help_text="The key of purchase caps: account:ID or visitor:ID.")
    email = models.CharField(
        max_length=254, blank=True, help_text="Normalized; set at checkout, and counted by caps too."
    )
    status = models.CharField(max_length=16, choices=Status.choices)
    expires_at = models.DateTimeField(help_text="The hold expires then, unless paying has begun.")
    pay_deadline = models.DateTimeField(
        null=True,
        blank=True,
        help_text="Set once when paying begins, never extended: expires_at, or later if little of the hold was left.",
    )
    seat_count = models.PositiveIntegerField(
        help_text="Seats and general-admission tickets together, without those returned after the sale."
    )
    total_minor = models.PositiveBigIntegerField()
    currency = models.CharField(max_length=3)
    # No foreign key either: the hold has the code's row locked. The auditor finds orphans.
    access_code = models.ForeignKey(
        AccessCode, on_delete=models.PROTECT, null=True, blank=True, related_name="reservations", db_constraint=False,
        db_index=False, help_text="The access code of its restricted sections; the reservation counts as a use.",
    )  # fmt: skip
    created_at = models.DateTimeField()
    confirmed_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True, help_text="The time of its cancellation or expiry.")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["entry"],
                condition=Q(status__in=["pending_payment", "paying"]),
                name="reservation_one_live_per_admission",
            ),
            models.CheckConstraint(
                condition=~Q(status="paying") | Q(pay_deadline__isnull=False), name="reservation_paying_has_deadline"
            ),
            models.CheckConstraint(
                condition=Q(pay_deadline__isnull=True) | Q(pay_deadline__gte=F("expires_at")),
                name="reservation_paying_keeps_hold",
            ),
            models.CheckConstraint(
                condition=~Q(status="confirmed") | Q(confirmed_at__isnull=False), name="reservation_confirmed_has_time"
            ),
            models.CheckConstraint(
                condition=~Q(status__in=["canceled", "expired"]) | Q(ended_at__isnull=False),
                name="reservation_ended_has_time",
            ),
            models.CheckConstraint(condition=Q(seat_count__gte=1), name="reservation_not_empty"),
        ]
        indexes = [
            models.Index(
                fields=["expires_at"], condition=Q(status="pending_payment"), name="reservation_pending_expiry"
            ),
            models.Index(fields=["pay_deadline"], condition=Q(status="paying"), name="reservation_paying_expiry"),
            # The same within one event: a hold that finds too few seats expires overdue reservations of its event.
            models.Index(
                fields=["event", "expires_at"],
                condition=Q(status="pending_payment"),
                name="reservation_pending_of_event",
            ),
            models.Index(
                fields=["event", "pay_deadline"], condition=Q(status="paying"), name="reservation_paying_of_event"
            ),
            models.Index(
                fields=["event", "buyer"],
                condition=Q(status__in=["pending_payment", "paying", "confirmed"]),
                name="reservation_by_buyer",
            ),
            models.Index(
                fields=["event", "email"],
                condition=Q(status__in=["pending_payment", "paying", "confirmed"]) & ~Q(email=""),
                name="reservation_by_email",
            ),
            # For counting the uses of an access code; contains only reservations with one.
            models.Index(
                fields=["access_code", "status", "buyer"],
                condition=Q(access_code__isnull=False),
                name="reservation_by_access_code",
            ),
            # Contains no reservations of guests.
            models.Index(
                fields=["account", "-created_at"],
                condition=Q(account__isnull=False),
                name="reservation_by_account",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.pk} {self.status}"


class ReservationLine(models.Model):
    """A line: one seat, or a quantity of one general-admission section. `live` while its reservation is live or
    confirmed and the line was not returned."""

    id = models.BigAutoField(primary_key=True)
    # No foreign key here either: the same transaction writes both rows, and reservations are never deleted.
    reservation = models.ForeignKey(Reservation, on_delete=models.PROTECT, related_name="lines", db_constraint=False)
    section = models.ForeignKey(
        "events.Section", on_delete=models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    category = models.ForeignKey(
        "events.Category", on_delete=models.PROTECT, related_name="+", db_constraint=False, db_index=False
    )
    # No foreign key to the seat: the hold has the seat's inventory row locked, which proves that it exists, and the
    # check would lock one more row per seat in the busiest transaction. The auditor finds orphans.
    seat = models.ForeignKey(
        SeatInventory, on_delete=models.PROTECT, null=True, blank=True, related_name="+", db_constraint=False,
        db_index=False,
    )  # fmt: skip
    quantity = models.PositiveIntegerField()
    price_minor = models.PositiveBigIntegerField(help_text="The price of one, fixed by the hold.")
    live = models.BooleanField(default=True)
    returned_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="Returned while its reservation stayed confirmed. Tickets returned from a line that keeps others "
        "become a separate line.",
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["seat"], condition=Q(live=True), name="reservation_line_seat_held_once"),
            models.CheckConstraint(
                condition=Q(returned_at__isnull=True) | Q(live=False), name="reservation_line_returned_holds_nothing"
            ),
            models.CheckConstraint(
                condition=Q(seat__isnull=True, quantity__gte=1) | Q(seat__isnull=False, quantity=1),
                name="reservation_line_quantity",
            ),
        ]
        indexes = [
            models.Index(fields=["section"], condition=Q(live=True, seat__isnull=True), name="reservation_line_places")
        ]

    def __str__(self) -> str:
        return f"seat {self.seat_id}" if self.seat_id is not None else f"{self.quantity} × section {self.section_id}"


class ReservationTransition(models.Model):
    """The append-only ledger of reservations; a trigger refuses updates and deletions."""

    id = models.BigAutoField(primary_key=True)
    reservation = models.ForeignKey(
        Reservation, on_delete=models.PROTECT, related_name="transitions", db_constraint=False
    )
    from_status = models.CharField(max_length=16, blank=True, help_text="Empty: the hold itself.")
    to_status = models.CharField(max_length=16)
    who = models.CharField(max_length=120)
    why = models.CharField(max_length=200, blank=True)
    at = models.DateTimeField()
    transaction_id = models.BigIntegerField(
        db_default=CurrentTransactionId(), editable=False, help_text="By which the audit finds what has changed."
    )

    class Meta:
        ordering = ["id"]
        # Rows are appended almost in the order of transactions, so this index costs an insert next to nothing.
        indexes = [
            BrinIndex(fields=["transaction_id"], name="transition_transaction", autosummarize=True, pages_per_range=32)
        ]

    def __str__(self) -> str:
        return f"{self.from_status or 'new'} → {self.to_status}"


class InventoryChange(models.Model):
    """A change of the inventory by staff, a repair or a compensation. Append-only; a trigger refuses updates and
    deletions. A refused change by staff has one row too, without section and seat, which says why it was refused."""

    class Kind(models.TextChoices):
        BLOCKED = "blocked", "blocked"
        UNBLOCKED = "unblocked", "unblocked"
        RESIZED = "resized", "resized"
        REPRICED = "repriced", "repriced"
        MOVED = "moved", "moved to another price"
        REPAIRED = "repaired", "repaired"
        COMPENSATED = "compensated", "compensated"
        GUARDED = "guarded", "restricted to access codes"
        OPENED = "opened", "open to all buyers"

    id = models.BigAutoField(primary_key=True)
    # No foreign keys in the database: a change has rows of the inventory locked, which proves that seat, section and
    # event exist. The checks of a change of 20,000 seats took longer than the change.
    event = models.ForeignKey("events.Event", on_delete=models.PROTECT, related_name="+", db_constraint=False)
    section = models.ForeignKey(
        "events.Section", on_delete=models.PROTECT, null=True, blank=True, related_name="+", db_constraint=False
    )
    seat = models.ForeignKey(
        "events.Seat", on_delete=models.PROTECT, null=True, blank=True, related_name="+", db_constraint=False
    )
    kind = models.CharField(max_length=12, choices=Kind.choices)
    quantity = models.IntegerField(help_text="Number of seats or tickets; negative if they were removed.")
    detail = models.JSONField(default=dict, blank=True, help_text="The values before and after, by name.")
    who = models.CharField(max_length=120)
    why = models.CharField(max_length=200, blank=True)
    refusal = models.CharField(
        max_length=300, blank=True, default="", db_default="", help_text="Why nothing was changed; empty: performed."
    )
    at = models.DateTimeField()

    transaction_id = models.BigIntegerField(
        db_default=CurrentTransactionId(), editable=False, help_text="By which the audit finds what has changed."
    )

    class Meta:
        ordering = ["id"]
        indexes = [
            BrinIndex(
                fields=["transaction_id"], name="stock_change_transaction", autosummarize=True, pages_per_range=32
            )
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.quantity}"


class PurchaseCap(models.Model):
    """A row to lock while a buyer's seats of an event are counted. It stores no count: the reservations are counted, so
    that no counter can drift."""

    id = models.BigAutoField(primary_key=True)
    event = models.ForeignKey("events.Event", on_delete=models.CASCADE, related_name="+")
    buyer = models.CharField(max_length=260, help_text="account:ID, visitor:ID or email:ADDRESS.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["event", "buyer"], name="purchase_cap_once_per_buyer")]

    def __str__(self) -> str:
        return self.buyer


class CleanupLog(models.Model):
    """The stock that one sweep released in one section."""

    id = models.BigAutoField(primary_key=True)
    section = models.ForeignKey("events.Section", on_delete=models.CASCADE, related_name="+")
    general_admission_released = models.PositiveIntegerField()
    seats_released = models.PositiveIntegerField()
    reservations_affected = models.PositiveIntegerField()
    duration_ms = models.PositiveIntegerField()
    swept_by = models.CharField(max_length=40)
    swept_at = models.DateTimeField()

    class Meta:
        ordering = ["-swept_at"]
        indexes = [models.Index(fields=["-swept_at"], name="cleanup_log_latest")]

    def __str__(self) -> str:
        return f"section {self.section_id} at {self.swept_at}"


class AvailabilityFrame(models.Model):
    """The last frame that the relay published for an event, for use without Redis."""

    event = models.OneToOneField("events.Event", on_delete=models.CASCADE, primary_key=True, related_name="+")
    epoch = models.CharField(max_length=16, help_text="Identifies the relay's run.")
    sequence = models.PositiveBigIntegerField()
    frame = models.TextField()
    published_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.epoch}-{self.sequence}"


class ToldPage(models.Model):
    """The state of an event's page that caches were last purged for (`inventory.cache_invalidation`)."""

    event = models.OneToOneField("events.Event", on_delete=models.CASCADE, primary_key=True, related_name="+")
    status = models.CharField(max_length=10)
    version = models.CharField(max_length=32, help_text="Version of the page's content, without counts.")
    stock = models.CharField(max_length=4, blank=True, help_text="free, gone, or empty while nothing is on sale.")
    told_at = models.DateTimeField()
