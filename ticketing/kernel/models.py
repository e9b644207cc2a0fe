"""The kernel's own rows: remembered answers and the auditor's latest results."""

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


class AuditRun(models.Model):
    """One run of the auditor: green when `breach_count` is zero."""

    started_at = models.DateTimeField()
    duration_ms = models.PositiveIntegerField()
    breach_count = models.PositiveIntegerField()
    report = models.JSONField()

    class Meta:
        ordering = ["-started_at"]
        indexes = [models.Index(fields=["-started_at"], name="audit_run_latest")]

    def __str__(self) -> str:
        return f"{self.started_at:%Y-%m-%d %H:%M:%S} {'clean' if self.breach_count == 0 else 'BREACH'}"
