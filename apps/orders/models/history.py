"""What happened to an order beside its money and tickets: mails that were sent, and corrections by staff."""

from django.db import models
from django.db.models import Q

from apps.kernel.db.transaction_ids import CurrentTransactionId
from apps.orders.models.orders import Order


class OrderHistoryEntry(models.Model):
    """A mail about the order, or an action of staff. Append-only, except for the erasure of personal data."""

    class Kind(models.TextChoices):
        MAIL = "mail", "email sent"
        RESENT = "resent", "tickets sent again"
        CORRECTED = "corrected", "buyer corrected"

    id = models.BigAutoField(primary_key=True)
    order = models.ForeignKey(Order, on_delete=models.PROTECT, related_name="history")
    kind = models.CharField(max_length=10, choices=Kind.choices)
    who = models.CharField(max_length=120, blank=True, help_text="staff:ID; empty: the system.")
    text = models.CharField(max_length=300, help_text="The mail's subject, or what was changed and why.")
    address = models.CharField(
        max_length=254, blank=True, help_text="The mail's recipient; for a correction the address before it."
    )
    at = models.DateTimeField()

    class Meta:
        ordering = ["id"]
        verbose_name_plural = "order history entries"
        # An erasure and an export of a person find the entries with a former address.
        indexes = [models.Index(fields=["address"], name="order_history_of_address")]
        constraints = [
            models.CheckConstraint(condition=Q(kind="mail") | ~Q(who=""), name="order_history_entry_has_actor"),
        ]

    def __str__(self) -> str:
        return self.text


class ChangedOrder(models.Model):
    """An order that a transaction has written. Triggers on the tables of an order add these rows for the audit, which
    deletes them once it has checked the order."""

    id = models.BigAutoField(primary_key=True)
    order_id = models.UUIDField(editable=False)
    transaction_id = models.BigIntegerField(db_default=CurrentTransactionId(), editable=False)

    def __str__(self) -> str:
        return f"{self.order_id} in {self.transaction_id}"
