"""Figures of sales: published reports, and the tallies behind the staff's dashboards."""

from django.db import models
from django.db.models import Q


class ReportVersion(models.Model):
    """A signed report of an event's sale, as it is served: never changed. A later version replaces it on the page."""

    event = models.ForeignKey("events.Event", on_delete=models.PROTECT, related_name="+", db_index=False)
    version = models.PositiveIntegerField()
    as_of = models.DateTimeField(help_text="The figures count what happened up to then.")
    published_at = models.DateTimeField()
    published_by = models.CharField(max_length=150)
    document = models.TextField(help_text="The signed JSON, byte for byte.")
    pdf = models.BinaryField()
    key_id = models.CharField(max_length=16)
    public_key = models.BinaryField(max_length=32, help_text="The Ed25519 key that verifies the signature.")

    class Meta:
        ordering = ["-published_at"]
        constraints = [
            models.UniqueConstraint(fields=["event", "version"], name="report_version_once"),
            models.CheckConstraint(condition=Q(version__gte=1), name="report_version_positive"),
        ]

    def __str__(self) -> str:
        return f"report of event {self.event_id}, version {self.version}"


class NetworkTally(models.Model):
    """How the purchases of a sale were spread over networks, counted when its first report was published. It has counts
    only: the digests that it was counted from, and their key, were deleted."""

    event = models.OneToOneField("events.Event", on_delete=models.PROTECT, primary_key=True, related_name="+")
    as_of = models.DateTimeField()
    rows = models.JSONField(help_text="Kind, tickets, buyers, and how many networks have them; the largest first.")

    class Meta:
        verbose_name_plural = "network tallies"

    def __str__(self) -> str:
        return f"networks of event {self.event_id}"


class SalesTally(models.Model):
    """The sales of an event before `counted_until`, and the figures that its dashboard showed last. Sales are counted
    once: an order's time of confirmation never changes. Only dashboard/sales_tally.py and dashboard/figures.py write
    it."""

    event = models.OneToOneField("events.Event", on_delete=models.CASCADE, primary_key=True, related_name="+")
    counted_until = models.DateTimeField(help_text="A full minute. Orders confirmed before it are counted.")
    order_count = models.PositiveBigIntegerField(default=0)
    ticket_count = models.PositiveBigIntegerField(default=0)
    gross_minor = models.PositiveBigIntegerField(default=0)
    figures = models.JSONField(default=dict)
    figures_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"sales of event {self.event_id}"


class SalesMinute(models.Model):
    """The sales of an event in one minute, all counted. Minutes without sales have no row."""

    event = models.ForeignKey("events.Event", on_delete=models.CASCADE, related_name="+", db_index=False)
    minute = models.DateTimeField()
    order_count = models.PositiveIntegerField()
    ticket_count = models.PositiveIntegerField()
    gross_minor = models.PositiveBigIntegerField()

    class Meta:
        ordering = ["minute"]
        constraints = [models.UniqueConstraint(fields=["event", "minute"], name="sales_minute_once")]

    def __str__(self) -> str:
        return f"{self.ticket_count} tickets of event {self.event_id}, {self.minute:%Y-%m-%d %H:%M}"
