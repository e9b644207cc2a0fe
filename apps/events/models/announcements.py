"""What was said, version by version, and where the old of it is packed."""

from django.db import models
from django.db.models import F, Q

TEXT_CHARACTERS_MAX = 500
KEY_CHARACTERS_MAX = 64


class AnnouncementFeed(models.Model):
    """Of an event at which anything was said, the number of what was said last. Whoever says more has this row locked,
    so that numbers rise in the order in which they are committed."""

    event = models.OneToOneField(
        "events.Event", on_delete=models.CASCADE, primary_key=True, related_name="announcement_feed"
    )
    latest = models.PositiveIntegerField(default=0)

    class Meta:
        verbose_name = "feed of announcements"
        verbose_name_plural = "feeds of announcements"


class AnnouncementVersion(models.Model):
    """One thing that was said: a new announcement, a correction of one, or that it is taken back. Never changed; it
    goes only into the archive."""

    event = models.ForeignKey("events.Event", on_delete=models.CASCADE, related_name="+")
    number = models.PositiveIntegerField(help_text="Rises by one with everything that is said at the event.")
    announcement = models.PositiveIntegerField(help_text="The number of its first version.")
    text = models.CharField(max_length=TEXT_CHARACTERS_MAX, blank=True, help_text="Plain; empty: taken back.")
    posted_at = models.DateTimeField(help_text="When its first version was said.")
    at = models.DateTimeField()
    who = models.CharField(max_length=150)
    key = models.CharField(max_length=KEY_CHARACTERS_MAX, help_text="Of the form that was sent: once is enough.")

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
    """All versions of what was first said on one day, long after the event: JSON in gzip."""

    event = models.ForeignKey("events.Event", on_delete=models.CASCADE, related_name="+")
    day = models.DateField(help_text="In UTC.")
    first = models.PositiveIntegerField(help_text="The lowest announcement in it.")
    last = models.PositiveIntegerField(help_text="The highest.")
    version_count = models.PositiveIntegerField()
    standing_count = models.PositiveIntegerField(help_text="Announcements in it that were not taken back.")
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
