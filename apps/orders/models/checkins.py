"""The door: what was scanned there, and the links that let somebody without an account stand at one."""

import uuid

from django.db import models
from django.db.models import F, Q

from apps.orders.models.tickets import Ticket


class DoorLink(models.Model):
    """A signed link for whoever has no account: it checks tickets of one event in, within its time, until revoked."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    event = models.ForeignKey("events.Event", on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=60, help_text="Who stands there.")
    door = models.CharField(max_length=60, blank=True, help_text="Empty: chosen on the phone.")
    good_from = models.DateTimeField()
    good_until = models.DateTimeField()
    created_by = models.CharField(max_length=120)
    created_at = models.DateTimeField()
    revoked_by = models.CharField(max_length=120, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.CheckConstraint(condition=Q(good_until__gt=F("good_from")), name="door_link_has_time"),
            models.CheckConstraint(
                condition=Q(revoked_at__isnull=True, revoked_by="") | (Q(revoked_at__isnull=False) & ~Q(revoked_by="")),
                name="door_link_revoked_by_somebody",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name}, {self.door}" if self.door else self.name


class TicketScan(models.Model):
    """One code shown at a door, or one check-in taken back, and what it was answered. A trigger keeps it append-only.

    The row is the answer: the same scan sent again is answered from it, whatever has become of the ticket since.
    """

    class Outcome(models.TextChoices):
        WELCOME = "welcome", "welcome"
        ALREADY_IN = "already_in", "already in"
        WRONG_EVENT = "wrong_event", "of another event"
        REPLACED = "replaced", "replaced by a new code"
        NOT_VALID = "not_valid", "refunded or canceled"
        UNKNOWN = "unknown", "unknown"
        UNDONE = "undone", "taken back"
        NOT_UNDONE = "not_undone", "nothing to take back"

    id = models.BigAutoField(primary_key=True)
    event = models.ForeignKey("events.Event", on_delete=models.PROTECT, related_name="+", help_text="The door's.")
    scan_id = models.CharField(max_length=64, help_text="The scanning device's own name for it.")
    ticket = models.ForeignKey(Ticket, on_delete=models.PROTECT, null=True, blank=True, related_name="scans")
    code = models.CharField(max_length=80, help_text="As it was read.")
    door = models.CharField(max_length=60, blank=True)
    who = models.CharField(max_length=120, help_text="staff:ID, link:ID or command:NAME.")
    outcome = models.CharField(max_length=12, choices=Outcome.choices)
    undoes = models.ForeignKey("self", on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    since_at = models.DateTimeField(null=True, blank=True, help_text="Already in: since then,")
    since_door = models.CharField(max_length=60, blank=True, help_text="by this door.")
    at = models.DateTimeField(help_text="By the database's clock.")

    class Meta:
        ordering = ["-id"]
        permissions = [("check_in", "Can check tickets in at a door")]
        constraints = [
            models.UniqueConstraint(fields=["event", "scan_id"], name="ticket_scan_once"),
            models.UniqueConstraint(fields=["undoes"], condition=Q(outcome="undone"), name="ticket_scan_undone_once"),
            models.CheckConstraint(condition=~Q(scan_id=""), name="ticket_scan_has_id"),
            models.CheckConstraint(
                condition=Q(outcome__in=["unknown", "not_undone"]) | Q(ticket__isnull=False),
                name="ticket_scan_knows_ticket",
            ),
            models.CheckConstraint(
                condition=~Q(outcome="undone") | Q(undoes__isnull=False), name="ticket_scan_undoes_a_scan"
            ),
            models.CheckConstraint(
                condition=~Q(outcome="already_in") | Q(since_at__isnull=False), name="ticket_scan_in_since"
            ),
        ]
        indexes = [models.Index(fields=["event", "-at"], name="ticket_scan_by_event")]

    def __str__(self) -> str:
        return f"{self.get_outcome_display()} {self.at:%Y-%m-%d %H:%M:%S}"
