"""Invoices and credit notes: numbered without gaps, and immutable."""

from django.db import models
from django.db.models import Q

from apps.orders.models.orders import Order


class InvoiceKind(models.TextChoices):
    INVOICE = "invoice", "invoice"
    CREDIT_NOTE = "credit_note", "credit note"


class InvoiceCounter(models.Model):
    """The latest number of one series in one year. Its row is the last lock that a transaction takes, and the document
    with the number is written under it. So numbers have no gaps and rise with the documents' times."""

    id = models.BigAutoField(primary_key=True)
    kind = models.CharField(max_length=12, choices=InvoiceKind.choices)
    series = models.CharField(max_length=12)
    year = models.PositiveSmallIntegerField()
    last = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["kind", "series", "year"], name="invoice_counter_once"),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.series} {self.year}: {self.last}"


class Invoice(models.Model):
    """An invoice or credit note as issued. A trigger refuses changes and deletions: corrections are new documents."""

    id = models.BigAutoField(primary_key=True)
    kind = models.CharField(max_length=12, choices=InvoiceKind.choices)
    series = models.CharField(max_length=12)
    year = models.PositiveSmallIntegerField()
    sequence = models.PositiveIntegerField(help_text="From 1, without gaps.")
    number = models.CharField(max_length=40, help_text="As printed.")
    order = models.ForeignKey(Order, on_delete=models.PROTECT, related_name="invoices")
    refers_to = models.ForeignKey(
        "self", on_delete=models.PROTECT, null=True, blank=True, related_name="credit_notes",
        help_text="A credit note's invoice.",
    )  # fmt: skip
    issued_at = models.DateTimeField()
    currency = models.CharField(max_length=3)
    total_minor = models.PositiveBigIntegerField(help_text="The amount paid; for a credit note, refunded.")
    tax_minor = models.PositiveBigIntegerField(help_text="Within the total.")
    paper = models.JSONField(help_text="Its whole content: seller, buyer, event, lines, tax.")

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["kind", "series", "year", "sequence"], name="invoice_sequence_once"),
            models.UniqueConstraint(fields=["number"], name="invoice_number_once"),
            models.UniqueConstraint(fields=["order"], condition=Q(kind="invoice"), name="invoice_one_per_order"),
            models.CheckConstraint(condition=Q(sequence__gte=1), name="invoice_sequence_from_one"),
            models.CheckConstraint(
                condition=Q(kind="invoice", refers_to__isnull=True) | Q(kind="credit_note", refers_to__isnull=False),
                name="invoice_credit_note_refers",
            ),
            models.CheckConstraint(
                condition=Q(total_minor__gt=0, tax_minor__lte=models.F("total_minor")), name="invoice_amounts_sane"
            ),
        ]

    def __str__(self) -> str:
        return self.number
