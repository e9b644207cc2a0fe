"""The kernel's tables: idempotent responses, token keys, health signals, domains that accept mails, audit and
reconciliation results, and changes of public pages."""

from datetime import datetime, timedelta

from django.db import models


class IdempotentAnswer(models.Model):
    """The response to an idempotency key, byte for byte. Only responses to requests that changed state are stored."""

    id = models.BigAutoField(primary_key=True)
    scope = models.CharField(max_length=120, help_text="The operation and the buyer.")
    key = models.CharField(max_length=200)
    fingerprint = models.CharField(max_length=64, help_text="SHA-256 of the canonical request.")
    status = models.PositiveSmallIntegerField()
    answer = models.TextField()
    created_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["scope", "key"], name="idempotent_answer_once")]
        indexes = [models.Index(fields=["created_at"], name="idempotent_answer_age")]

    def __str__(self) -> str:
        return f"{self.scope} {self.key}"


class TokenKey(models.Model):
    """A key that signs tokens from `signs_from` and verifies them until `verifies_until`."""

    key_id = models.CharField(max_length=16, primary_key=True)
    secret = models.BinaryField()
    created_at = models.DateTimeField()
    signs_from = models.DateTimeField(help_text="After its creation, so that every process knows the key by then.")
    verifies_until = models.DateTimeField(null=True, blank=True, help_text="Empty: no end is set yet.")
    dropped_at = models.DateTimeField(null=True, blank=True, help_text="Compromised: its tokens are invalid.")

    class Meta:
        ordering = ["-signs_from"]

    def __str__(self) -> str:
        return self.key_id


class MailCount(models.Model):
    """How many mails one recipient got, one network requested, or one kind of mail had in the current hour and day
    (`mail_caps`)."""

    recipient = models.CharField(max_length=64, primary_key=True, help_text="HMAC of the address.")
    hour_from = models.DateTimeField()
    hour_count = models.PositiveIntegerField()
    day_from = models.DateTimeField()
    day_count = models.PositiveIntegerField()

    def __str__(self) -> str:
        return f"{self.hour_count} in an hour, {self.day_count} in a day"


class MailDomain(models.Model):
    """A domain for which the mail server accepts mails (`accepted_domains`)."""

    digest = models.CharField(max_length=64, primary_key=True, help_text="HMAC of the domain.")
    accepted_at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["accepted_at"], name="mail_domain_age")]

    def __str__(self) -> str:
        return f"{self.accepted_at:%Y-%m-%d %H:%M:%S}"


class Signal(models.Model):
    """The latest report of one health signal by one process. Old reports are ignored."""

    name = models.CharField(max_length=40)
    process = models.CharField(max_length=80)
    value = models.FloatField()
    count = models.PositiveIntegerField(help_text="Number of measurements.")
    at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["name", "process"], name="signal_once_per_process")]

    def __str__(self) -> str:
        return f"{self.name} {self.value:g}"


class AuditRun(models.Model):
    """One run of the auditor, clean if it found no breach and could check everything."""

    class Scope(models.TextChoices):
        CHANGES = "changes", "what had changed"
        EVERYTHING = "everything", "everything"

    scope = models.CharField(max_length=12, choices=Scope.choices, default=Scope.EVERYTHING, db_default="everything")
    started_at = models.DateTimeField()
    duration_ms = models.PositiveBigIntegerField()
    breach_count = models.PositiveIntegerField()
    report = models.JSONField()
    horizon = models.BigIntegerField(
        null=True, blank=True, help_text="The next audit of changes begins with this transaction."
    )
    cluster = models.BigIntegerField(null=True, blank=True, help_text="The database cluster that counts transactions.")

    class Meta:
        ordering = ["-started_at"]
        indexes = [
            models.Index(fields=["-started_at"], name="audit_run_latest"),
            models.Index(fields=["scope", "-started_at"], name="audit_run_latest_of_scope"),
        ]

    def __str__(self) -> str:
        return f"{self.started_at:%Y-%m-%d %H:%M:%S} {self.verdict}"

    @property
    def unchecked_count(self) -> int:
        """Checks without a result: they timed out on a busy machine."""
        return sum(bool(check.get("unchecked")) for check in self.report)

    @property
    def is_clean(self) -> bool:
        return self.breach_count == 0 and self.unchecked_count == 0

    @property
    def finished_at(self) -> datetime:
        return self.started_at + timedelta(milliseconds=self.duration_ms)

    @property
    def verdict(self) -> str:
        """A summary such as "1 breach, 2 checks without a result"."""
        parts = []
        if self.breach_count:
            parts.append(f"{self.breach_count} breach{'' if self.breach_count == 1 else 'es'}")
        if self.unchecked_count:
            parts.append(f"{self.unchecked_count} check{'' if self.unchecked_count == 1 else 's'} without a result")
        return ", ".join(parts) or "clean"


class ReconcileRun(models.Model):
    """One run of the reconciler, clean if no check failed and every difference was repaired or had disappeared."""

    started_at = models.DateTimeField()
    duration_ms = models.PositiveIntegerField()
    part = models.PositiveBigIntegerField(null=True, blank=True, help_text="The event's id; empty: all events.")
    repair_by = models.CharField(
        max_length=120, blank=True, help_text="The operator who requested repairs; empty: report only."
    )
    difference_count = models.PositiveIntegerField()
    repaired_count = models.PositiveIntegerField()
    gone_count = models.PositiveIntegerField(help_text="Differences that had disappeared under the lock.")
    failure_count = models.PositiveIntegerField(help_text="Checks that failed.")
    report = models.JSONField()

    class Meta:
        ordering = ["-started_at"]
        indexes = [models.Index(fields=["-started_at"], name="reconcile_run_latest")]

    def __str__(self) -> str:
        return f"{self.started_at:%Y-%m-%d %H:%M:%S} {self.difference_count or 'no'} differences"

    @property
    def left_count(self) -> int:
        """Differences that remain."""
        return self.difference_count - self.repaired_count - self.gone_count

    @property
    def is_clean(self) -> bool:
        return self.left_count == 0 and self.failure_count == 0


class PageChange(models.Model):
    """A mark that a statement may have changed a public page. Written by triggers (`page_cache.version`)."""

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M:%S}"


class ReconcileTotal(models.Model):
    """The number of differences of one kind ever found. It outlives deleted runs: a counter never decreases."""

    kind = models.CharField(max_length=60, primary_key=True)
    found_count = models.PositiveBigIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.kind} {self.found_count}"
