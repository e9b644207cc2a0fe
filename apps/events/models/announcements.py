"""Announcements in all their versions, and their archive."""

from django.db import models
from django.db.models import F, Q

TEXT_CHARACTERS_MAX = 500
KEY_CHARACTERS_MAX = 64


class AnnouncementFeed(models.Model):
    """The number of the last announcement version of one event. Adding a version locks this row, so that numbers
    rise in the order of commits."""

    event = models.OneToOneField(
        "events.Event", on_delete=models.CASCADE, primary_key=True, related_name="announcement_feed"
    )
    latest = models.PositiveIntegerField(default=0)

    class Meta:
        verbose_name = "feed of announcements"
        verbose_name_plural = "feeds of announcements"


class AnnouncementVersion(models.Model):
    """One version of an announcement: its first text, a correction or a retraction. Never changed; deleted only when
    it is archived."""

    event = models.ForeignKey("events.Event", on_delete=models.CASCADE, related_name="+")
    number = models.PositiveIntegerField(help_text="Rises by one with every version at the event.")
    announcement = models.PositiveIntegerField(help_text="The number of its first version.")
    text = models.CharField(max_length=TEXT_CHARACTERS_MAX, blank=True, help_text="Plain text; empty if retracted.")
    posted_at = models.DateTimeField(help_text="When the first version was posted.")
    at = models.DateTimeField()
    who = models.CharField(max_length=150)
    key = models.CharField(max_length=KEY_CHARACTERS_MAX, help_text="Idempotency key of the form.")

    class Meta:
        verbose_name = "announcement"
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["event", "announcement", "number"], name="announcement_of_event"),
            models.Index(fields=["who", "at"], name="announcement_of_author"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["event", "number"], name="announcement_version_number_once"),
            models.UniqueConstraint(fields=["event", "key"], name="announcement_version_key_once"),
            models.CheckConstraint(
                condition=Q(announcement__gte=1, announcement__lte=F("number")), name="announcement_version_has_first"
            ),
            models.CheckConstraint(
                condition=Q(announcement__lt=F("number")) | (~Q(text="") & Q(at=F("posted_at"))),
                name="announcement_version_first_says_something",
            ),
        ]

    def __str__(self) -> str:
        return f"announcement {self.announcement}, version {self.number}"


class AnnouncementArchive(models.Model):
    """All versions of the announcements first posted on one day, archived after the event: JSON in gzip."""

    event = models.ForeignKey("events.Event", on_delete=models.CASCADE, related_name="+")
    day = models.DateField(help_text="In UTC.")
    first = models.PositiveIntegerField(help_text="The lowest announcement number.")
    last = models.PositiveIntegerField(help_text="The highest announcement number.")
    version_count = models.PositiveIntegerField()
    standing_count = models.PositiveIntegerField(help_text="Announcements that were not retracted.")
    body = models.BinaryField()
    archived_at = models.DateTimeField()

    class Meta:
        ordering = ["-last"]
        constraints = [
            models.UniqueConstraint(fields=["event", "day"], name="announcement_archive_day_once"),
            models.CheckConstraint(condition=Q(first__lte=F("last")), name="announcement_archive_in_order"),
        ]

    def __str__(self) -> str:
        return f"announcements of {self.day}"
