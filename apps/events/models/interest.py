"""Interest in events: the rules by which a view counts, the log of views, their counts, and searches without results.

The log is partitioned by day. Within it, rows belong to one of a few shards and have consecutive positions there, which
`interest.log` assigns under the lock of the shard's row. Counts are written by `interest.counts` only, in the
transaction that moves the shard's cursor past the rows they count.
"""

from django.db import models

from apps.events.models.catalog import Event


class ViewRule(models.Model):
    """One of the rules by which a view counts, as operators edit it. Each change is stored as a new ViewRuleSet."""

    class Kind(models.TextChoices):
        MIN_SECONDS = "min_seconds", "at least this many seconds on the page"
        REPEAT_MINUTES = "repeat_minutes", "not the same person again within this many minutes"
        ADDRESS_MAX = "address_max", "at most this many a minute from one address"
        OWN_STAFF = "own_staff", "not staff of the event's organizer"
        BOTS = "bots", "not the bots in the list"

    kind = models.CharField("a view counts if it is", max_length=16, primary_key=True, choices=Kind.choices)
    is_on = models.BooleanField("on", default=True)
    number = models.PositiveIntegerField(
        null=True, blank=True, help_text="Seconds, minutes or views a minute, as the rule says."
    )
    words = models.TextField(
        "list",
        blank=True,
        help_text="Bots: one part of a user agent in each line, such as Googlebot. Capital letters do not matter.",
    )

    class Meta:
        ordering = ["kind"]

    def __str__(self) -> str:
        return self.get_kind_display()


class ViewRuleSet(models.Model):
    """All rules as they were from a moment on. Rows never change: a logged view is judged by the set under which it was
    logged, so that a recount gives the same numbers."""

    id = models.AutoField(primary_key=True)
    since = models.DateTimeField()
    min_seconds = models.PositiveIntegerField(help_text="0: no limit.")
    repeat_seconds = models.PositiveIntegerField(help_text="0: each view counts.")
    address_max = models.PositiveIntegerField(null=True, help_text="Empty: no limit.")
    excludes_staff = models.BooleanField()
    bots = models.TextField(blank=True)

    def __str__(self) -> str:
        return f"rules {self.pk}"


class ViewKey(models.Model):
    """The random part of a day's key of persons and addresses. It is deleted after the day, so that nothing logged can
    be linked with a person any more."""

    day = models.DateField(primary_key=True)
    secret = models.CharField(max_length=64)

    def __str__(self) -> str:
        return f"key of {self.day}"


class ViewShard(models.Model):
    """The end of a shard of the log: every append locks the row, so positions are consecutive and times never fall."""

    shard = models.PositiveSmallIntegerField(primary_key=True)
    last_position = models.BigIntegerField()
    last_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"shard {self.shard}"


class ViewBatch(models.Model):
    """A batch of views that has been appended. A repeated append of the same batch changes nothing."""

    id = models.UUIDField(primary_key=True)
    at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return str(self.id)


class ViewLog(models.Model):
    """One view of an event's page as its script reported it. Partitioned by day; kept for 30 days. Person and address
    are digests under the day's key."""

    pk = models.CompositePrimaryKey("shard", "at", "position")
    shard = models.PositiveSmallIntegerField()
    at = models.DateTimeField()
    position = models.BigIntegerField()
    event_id = models.BigIntegerField()
    person = models.BigIntegerField()
    address = models.BigIntegerField()
    seconds = models.PositiveIntegerField()
    is_staff = models.BooleanField(help_text="Sent by an account that is staff of the event's organizer.")
    is_bot = models.BooleanField(help_text="The user agent is on the list of bots.")
    rules_id = models.IntegerField()
    referrer = models.CharField(max_length=253)

    def __str__(self) -> str:
        return f"view {self.shard}/{self.position}"


class ViewCursor(models.Model):
    """How far a shard of the log has been counted."""

    shard = models.PositiveSmallIntegerField(primary_key=True)
    position = models.BigIntegerField(default=0)
    at = models.DateTimeField(null=True, help_text="The time of the row at this position.")
    counted_at = models.DateTimeField(null=True, help_text="When the last window was counted.")

    def __str__(self) -> str:
        return f"shard {self.shard} up to {self.position}"


class ViewMinute(models.Model):
    """The views of an event in one minute: those that count, and the others by the first rule that they break."""

    pk = models.CompositePrimaryKey("event", "minute")
    # Without a constraint in the database: a view of an event that was deleted in the meantime fails no batch.
    event = models.ForeignKey(Event, on_delete=models.CASCADE, related_name="+", db_constraint=False)
    minute = models.DateTimeField(db_index=True)
    counted = models.PositiveIntegerField()
    bots = models.PositiveIntegerField()
    staff = models.PositiveIntegerField()
    short = models.PositiveIntegerField()
    over_address_max = models.PositiveIntegerField()
    repeated = models.PositiveIntegerField()

    class Meta:
        verbose_name = "views of a minute"
        verbose_name_plural = "views of minutes"

    def __str__(self) -> str:
        return f"{self.counted} views"


class ViewDay(models.Model):
    """The views of an event that count, by day (UTC)."""

    pk = models.CompositePrimaryKey("event", "day")
    event = models.ForeignKey(Event, on_delete=models.CASCADE, related_name="+", db_constraint=False)
    day = models.DateField()
    counted = models.PositiveBigIntegerField()

    def __str__(self) -> str:
        return f"{self.counted} views on {self.day}"


class ViewReferrer(models.Model):
    """The views of an event that count, by day (UTC) and by the host that linked to it."""

    OTHERS = "*"
    """Hosts beyond those that are counted one by one."""

    pk = models.CompositePrimaryKey("event", "day", "host")
    event = models.ForeignKey(Event, on_delete=models.CASCADE, related_name="+", db_constraint=False)
    day = models.DateField(db_index=True)
    host = models.CharField(max_length=253, blank=True, help_text="Empty: opened directly, or not sent.")
    counted = models.PositiveIntegerField()

    def __str__(self) -> str:
        return f"{self.counted} views from {self.host}"


class ViewTrend(models.Model):
    """An event's views of the last hour beside what is usual for it."""

    event = models.OneToOneField(Event, on_delete=models.CASCADE, primary_key=True, related_name="+")
    last_hour = models.PositiveIntegerField()
    usual_hour = models.FloatField(help_text="Views in an hour on average over the week before.")
    points = models.PositiveSmallIntegerField(db_index=True, help_text="0 to 8, for the order of searches.")
    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.last_hour} views in the last hour"


class ViewDisplay(models.Model):
    """Whether an event's page shows how often it was viewed. Without a row it does not."""

    event = models.OneToOneField(Event, on_delete=models.CASCADE, primary_key=True, related_name="+")
    is_on = models.BooleanField()

    def __str__(self) -> str:
        return "shown" if self.is_on else "not shown"


class MissedSearch(models.Model):
    """How often a search found nothing, by day (UTC)."""

    pk = models.CompositePrimaryKey("day", "text")
    day = models.DateField()
    text = models.CharField(max_length=80, help_text="Folded words, separated by spaces.")
    count = models.PositiveIntegerField()
    is_common = models.BooleanField(default=False, help_text="Searched from several addresses, so it is shown.")
    addresses = models.CharField(max_length=60, blank=True, help_text="Digests of this day; empty once it is common.")

    def __str__(self) -> str:
        return self.text
