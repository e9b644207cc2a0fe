"""Published reports of sales."""

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
