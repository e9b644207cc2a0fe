"""The sandbox provider's own books: the outside world, kept in our database so that the demo needs no other."""

from django.db import models


class SandboxCharge(models.Model):
    """A row in the sandbox provider's own books. It plays the outside world: nothing of ours refers to it, and it is
    written in transactions of its own, never in the ledger's."""

    id = models.BigAutoField(primary_key=True)
    idempotency_key = models.CharField(max_length=120, unique=True)
    method = models.CharField(max_length=40)
    amount_minor = models.PositiveBigIntegerField()
    currency = models.CharField(max_length=3)
    status = models.CharField(max_length=12, help_text="pending, succeeded, declined, canceled or unheard.")
    occurred_at = models.DateTimeField()
    then_status = models.CharField(max_length=12, blank=True, help_text="What becomes of it by itself.")
    then_at = models.DateTimeField(null=True, blank=True, help_text="When it does.")
    return_url = models.CharField(max_length=500, blank=True, help_text="Where its buyer comes back to.")

    def __str__(self) -> str:
        return f"{self.amount_minor} {self.currency} {self.status}"


class SandboxRefund(models.Model):
    """A refund in the sandbox provider's own books."""

    id = models.BigAutoField(primary_key=True)
    idempotency_key = models.CharField(max_length=120, unique=True)
    charge = models.ForeignKey(SandboxCharge, on_delete=models.CASCADE, related_name="refunds")
    amount_minor = models.PositiveBigIntegerField()
    status = models.CharField(max_length=12, default="succeeded", help_text="pending, succeeded or failed.")
    failure = models.CharField(max_length=200, blank=True)
    occurred_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.amount_minor} given back"
