"""The kernel's own rows: remembered answers, token keys, the shop's vital signs, the auditor's latest results."""

from datetime import datetime, timedelta

from django.db import models


class IdempotentAnswer(models.Model):
    """What was answered to a key, byte for byte. Only answers that changed state are remembered."""

    id = models.BigAutoField(primary_key=True)
    scope = models.CharField(max_length=120, help_text="What was done, and by which buyer.")
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
    """A key that tokens are signed with from `signs_from` on, and verified with until `verifies_until`."""

    key_id = models.CharField(max_length=16, primary_key=True)
    secret = models.BinaryField()
    created_at = models.DateTimeField()
    signs_from = models.DateTimeField(help_text="Later than its making, so that every process knows it by then.")
    verifies_until = models.DateTimeField(null=True, blank=True, help_text="Empty: as long as it or its tokens live.")
    dropped_at = models.DateTimeField(null=True, blank=True, help_text="Compromised: nothing it signed counts.")

    class Meta:
        ordering = ["-signs_from"]

    def __str__(self) -> str:
        return self.key_id


class Signal(models.Model):
    """The latest of one vital sign as one process measured it. Old ones say nothing."""

    name = models.CharField(max_length=40)
    process = models.CharField(max_length=80)
    value = models.FloatField()
    count = models.PositiveIntegerField(help_text="Of how many measurements.")
    at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["name", "process"], name="signal_once_per_process")]

    def __str__(self) -> str:
        return f"{self.name} {self.value:g}"


class AuditRun(models.Model):
    """One run of the auditor: green when it found no breach and could check everything."""

    started_at = models.DateTimeField()
    duration_ms = models.PositiveIntegerField()
    breach_count = models.PositiveIntegerField()
    report = models.JSONField()

    class Meta:
        ordering = ["-started_at"]
        indexes = [models.Index(fields=["-started_at"], name="audit_run_latest")]

    def __str__(self) -> str:
        return f"{self.started_at:%Y-%m-%d %H:%M:%S} {self.verdict}"

    @property
    def unchecked_count(self) -> int:
        """Checks that came to no answer: out of time on a busy machine."""
        return sum(bool(check.get("unchecked")) for check in self.report)

    @property
    def is_clean(self) -> bool:
        return self.breach_count == 0 and self.unchecked_count == 0

    @property
    def finished_at(self) -> datetime:
        return self.started_at + timedelta(milliseconds=self.duration_ms)

    @property
    def verdict(self) -> str:
        """In a few words."""
        words = []
        if self.breach_count:
            words.append(f"{self.breach_count} breach{'' if self.breach_count == 1 else 'es'}")
        if self.unchecked_count:
            words.append(f"{self.unchecked_count} check{'' if self.unchecked_count == 1 else 's'} without an answer")
        return ", ".join(words) or "clean"


class ReconcileRun(models.Model):
    """One run of the reconciler: nothing was left to do when every difference was repaired or gone."""

    started_at = models.DateTimeField()
    duration_ms = models.PositiveIntegerField()
    part = models.PositiveBigIntegerField(null=True, blank=True, help_text="The one looked at; empty: everything.")
    repair_by = models.CharField(max_length=120, blank=True, help_text="Who asked for repairs; empty: only reported.")
    difference_count = models.PositiveIntegerField()
    repaired_count = models.PositiveIntegerField()
    gone_count = models.PositiveIntegerField(help_text="Found, and no longer there under the lock.")
    failure_count = models.PositiveIntegerField(help_text="Checks that could not be made.")
    report = models.JSONField()

    class Meta:
        ordering = ["-started_at"]
        indexes = [models.Index(fields=["-started_at"], name="reconcile_run_latest")]

    def __str__(self) -> str:
        return f"{self.started_at:%Y-%m-%d %H:%M:%S} {self.difference_count or 'no'} differences"

    @property
    def left_count(self) -> int:
        """Differences that stand."""
        return self.difference_count - self.repaired_count - self.gone_count


class ReconcileTotal(models.Model):
    """How many differences of one kind were ever found. It outlives the runs, because a counter never falls."""

    kind = models.CharField(max_length=60, primary_key=True)
    found_count = models.PositiveBigIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.kind} {self.found_count}"
