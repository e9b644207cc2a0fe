"""How the payment providers stand, as far as our calls found out."""

from django.db import models


class ProviderStanding(models.Model):
    """answering (rests_until empty) → resting → being tried (rests_until passed, one caller) → answering | resting.

    Shared by all processes. No row: the provider never failed. Only payments/circuit_breaker.py writes it.
    """

    provider = models.CharField(max_length=20, primary_key=True)
    faults_count = models.PositiveSmallIntegerField(default=0, help_text="In a row.")
    rests_until = models.DateTimeField(null=True, blank=True, help_text="Nobody calls it before; empty: it answers.")
    tried_until = models.DateTimeField(null=True, blank=True, help_text="After a rest one call tries it, until then.")
    changed_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.provider}: {self.faults_count} faults in a row"
