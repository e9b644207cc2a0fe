"""The circuit breaker's state of each payment provider."""

from django.db import models


class ProviderStanding(models.Model):
    """A provider's circuit: closed (no `rests_until`), open until `rests_until`, then half-open while one caller tries.

    All processes share the row. A provider that never failed has none. Only payments/circuit_breaker.py writes it.
    """

    provider = models.CharField(max_length=20, primary_key=True)
    faults_count = models.PositiveSmallIntegerField(default=0, help_text="Consecutive faults.")
    rests_until = models.DateTimeField(null=True, blank=True, help_text="Not called before then; empty: available.")
    tried_until = models.DateTimeField(null=True, blank=True, help_text="The end of the trial call after a rest.")
    changed_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.provider}: {self.faults_count} consecutive faults"
